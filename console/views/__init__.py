"""Pages: one file per noun, plain functions. A view asks access.py, calls a service, and shows what presenters made."""
