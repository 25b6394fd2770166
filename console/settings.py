"""Django's settings, from the environment (console/environment.py) and the key files of the data directory."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from django.urls import reverse_lazy

from agents.infra import clock
from console import environment
from console.auth import data_directory, secret_files
from console.runtime import backend_settings

# Before any model is loaded: fields keep the function of their default.
clock.install()
# Before numpy is loaded, as its library reads it then. The matrices here are small: more threads need four times the
# processor time, and what they sum depends on how many they are.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

TRAINYARD = environment.current()
BASE_DIR = environment.PROJECT_ROOT
# What `trainyard up` tells the operator. Every process passes here first, so each has the umask.
PUT_RIGHT = data_directory.prepare(TRAINYARD.data, own=TRAINYARD.data == environment.DEFAULT_DATA)
KEYS_DIR = secret_files.private_directory(TRAINYARD.data / "keys")

SECRET_KEY = secret_files.secret_key(KEYS_DIR)
FIELD_KEYS = secret_files.field_keys(KEYS_DIR)
DEPLOYMENT = secret_files.deployment(KEYS_DIR)
DEBUG = TRAINYARD.debug

ALLOWED_HOSTS = environment.allowed_hosts(TRAINYARD)
CSRF_TRUSTED_ORIGINS = [TRAINYARD.url] if TRAINYARD.url else []

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "django_htmx",
    "rest_framework",
    "console",
    "jobs",
    "agents",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    # Before all that may answer with a page of its own: also a page for an error has a language.
    "console.runtime.languages.Language",
    "console.runtime.requests.middleware.SecurityHeaders",
    "console.runtime.requests.middleware.RejectNul",
    "console.runtime.static_files.serving.StaticFilesMiddleware",
    "console.runtime.requests.middleware.TimeIsKnown",
    "console.runtime.requests.compression.Compression",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "console.runtime.requests.middleware.SessionUse",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "console.runtime.requests.middleware.SecondFactorRequired",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "console.urls"
# Addresses of the API may begin with two slashes: Google's SDK makes such addresses from an endpoint that ends in a
# slash.
SILENCED_SYSTEM_CHECKS = ["urls.W002"]
ASGI_APPLICATION = "console.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            # The later one has the tags that both have.
            "builtins": [
                "django.templatetags.i18n",
                "console.templatetags.kept_texts",
                "console.templatetags.kept_parts",
            ],
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    [
                        "django.template.loaders.filesystem.Loader",
                        "django.template.loaders.app_directories.Loader",
                    ],
                )
            ],
        },
    }
]

FORM_RENDERER = "console.forms.widget_renderer.WidgetRenderer"

DATABASES = {"default": backend_settings.database(TRAINYARD)}
PUT_RIGHT += data_directory.close_files(backend_settings.database_files(DATABASES["default"]))
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CHANNEL_LAYERS = {"default": backend_settings.channel_layer(TRAINYARD)}
REDIS_URL = backend_settings.redis_url(TRAINYARD)
CELERY = backend_settings.celery_settings(TRAINYARD)

STORAGES = {
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": TRAINYARD.data / "files"},
    },
    "logs": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": TRAINYARD.data / "logs"},
    },
    "artifacts": backend_settings.stored_files(TRAINYARD, DEPLOYMENT),
    "staticfiles": {"BACKEND": "console.runtime.static_files.build.HashedFiles"},
}

STATIC_URL = "/static/"
STATIC_BUILDS = BASE_DIR / "staticfiles"
STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
NPM = BASE_DIR / "node_modules"
# Packages from npm are served from node_modules, each under its own prefix.
STATICFILES_DIRS = [
    BASE_DIR / "static",
    ("npm/htmx", NPM / "htmx.org" / "dist"),
    ("npm/htmx-ws", NPM / "htmx-ext-ws" / "dist"),
    ("npm/idiomorph", NPM / "idiomorph" / "dist"),
    ("npm/uplot", NPM / "uplot" / "dist"),
    ("npm/xterm/css", NPM / "@xterm" / "xterm" / "css"),
    ("npm/xterm/lib", NPM / "@xterm" / "xterm" / "lib"),
    ("npm/xterm-fit/lib", NPM / "@xterm" / "addon-fit" / "lib"),
    ("npm/xterm-links/lib", NPM / "@xterm" / "addon-web-links" / "lib"),
    ("npm/xterm-search/lib", NPM / "@xterm" / "addon-search" / "lib"),
    ("npm/xterm-unicode11/lib", NPM / "@xterm" / "addon-unicode11" / "lib"),
]
# A developer's pages name the files as they are. Otherwise only prepared files are served: those with hashed names live
# a year in browsers, others are asked for again each time.
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = DEBUG
WHITENOISE_MAX_AGE = 0

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = reverse_lazy("login")
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = reverse_lazy("login")

SECURE_PUBLIC = TRAINYARD.url.startswith("https://")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_PUBLIC
SECURE_HSTS_SECONDS = 31_536_000 if SECURE_PUBLIC else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SECURE_PUBLIC else None
# Browsers do not separate cookies by port. With one cookie name, two deployments on one machine would log out each
# other's users.
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = f"session-{DEPLOYMENT}", f"csrf-{DEPLOYMENT}"
SESSION_ENGINE = "console.auth.session_store"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CSRF_FAILURE_VIEW = "console.views.errors.csrf"
DATA_UPLOAD_MAX_MEMORY_SIZE = TRAINYARD.max_body_mb * 1024 * 1024

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "UNAUTHENTICATED_USER": None,
}

# E-mail is sent through TRAINYARD_SMTP_URL. Without it no e-mail is sent.
SMTP = urlsplit(TRAINYARD.smtp_url)
EMAIL_HOST = SMTP.hostname or ""
EMAIL_PORT = SMTP.port or {"smtps": 465, "smtp+starttls": 587}.get(SMTP.scheme, 25)
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(SMTP.username or ""), unquote(SMTP.password or "")
EMAIL_USE_TLS, EMAIL_USE_SSL = SMTP.scheme == "smtp+starttls", SMTP.scheme == "smtps"
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = TRAINYARD.mail_from

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
# A language stands here as soon as its catalogue is complete (locale/README.md), with the name that its speakers use.
LANGUAGES = [("en", "English"), ("ja", "日本語"), ("ko", "한국어"), ("pt-br", "Português (Brasil)")]
LOCALE_PATHS = [BASE_DIR / "locale"]
LANGUAGE_COOKIE_NAME = "language"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        # Anybody may ask for what Google's APIs have and Trainyard does not: 501 is no error of ours.
        "not_501": {
            "()": "django.utils.log.CallbackFilter",
            "callback": lambda record: getattr(record, "status_code", 0) != 501,
        },
        "rarely": {"()": "agents.infra.database_pool.SayRarely"},
    },
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        # kombu warns that a Unix socket has no host name.
        "kombu.connection": {"level": "ERROR"},
        # While the database is away the pool warns of each try to connect, twice a second.
        "psycopg.pool": {"filters": ["rarely"]},
        # Django warns of every request for an address that does not exist. Scanners ask for many.
        "django.request": {"level": "ERROR", "filters": ["not_501"]},
    }
    | {
        name: {"handlers": ["console"], "level": TRAINYARD.log_level, "propagate": False}
        for name in ("agents", "console", "jobs")
    },
}
