/* Preloaded into a process: its clock is wrong by the seconds in the file that WRONG_CLOCK names, now and whenever they
 * change. Only what shows the date is wrong, as with a real clock that somebody sets. See wrong_clocks.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t right = 0;
static const volatile int64_t *wrong = &right;

void follow_clock(const char *name) {
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *shared = mmap(NULL, sizeof *wrong, PROT_READ, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED) wrong = shared;
    close(file);
}

__attribute__((constructor)) static void begin(void) { follow_clock(getenv("WRONG_CLOCK")); }

int clock_gettime(clockid_t which, struct timespec *shown) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real ? real(which, shown) : (int)syscall(SYS_clock_gettime, which, shown);
    if (!failed && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) shown->tv_sec += *wrong;
    return failed;
}

int gettimeofday(struct timeval *restrict shown, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    shown->tv_sec = now.tv_sec;
    shown->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *shown) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (shown) *shown = now.tv_sec;
    return now.tv_sec;
}
