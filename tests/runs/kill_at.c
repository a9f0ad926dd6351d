/* Kills its process at the n-th file operation inside a folder: `arm(folder, n)` from inside the process.
 *
 * Preloaded, it stands before the C library. An operation is opening for writing, writing, flushing, renaming,
 * removing, cutting off, making a folder. A write counts twice: it is killed before anything is written, and when
 * half of it is. With n = 0 nothing is killed; `counted()` says how many operations there were.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[4096];
static long wanted, seen;

void arm(const char *inside, long number) {
    snprintf(folder, sizeof folder, "%s", inside);
    wanted = number;
    seen = 0;
}

long counted(void) { return seen; }

static int inside(const char *path) {
    return folder[0] && path && strncmp(path, folder, strlen(folder)) == 0;
}

static int inside_fd(int fd) {
    char link[64], path[4096];
    if (!folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return inside(path);
}

static int now(void) { return ++seen == wanted; }

static void step(int here) {
    if (here && now()) raise(SIGKILL);
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define MODE(flags)                \
    va_list rest;                  \
    va_start(rest, flags);         \
    int mode = va_arg(rest, int);  \
    va_end(rest)

#define OPEN(name)                                  \
    int name(const char *path, int flags, ...) {    \
        REAL(name);                                 \
        MODE(flags);                                \
        step(WRITES(flags) && inside(path));        \
        return real(path, flags, mode);             \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                        \
    int name(int at, const char *path, int flags, ...) {    \
        REAL(name);                                         \
        MODE(flags);                                        \
        step(WRITES(flags) && inside(path));                \
        return real(at, path, flags, mode);                 \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void *bytes, size_t count) {
    REAL(write);
    if (inside_fd(fd)) {
        step(1);
        if (now()) {
            real(fd, bytes, count / 2);
            raise(SIGKILL);
        }
    }
    return real(fd, bytes, count);
}

int fsync(int fd) {
    REAL(fsync);
    step(inside_fd(fd));
    return real(fd);
}

int ftruncate(int fd, off_t length) {
    REAL(ftruncate);
    step(inside_fd(fd));
    return real(fd, length);
}

int ftruncate64(int fd, off64_t length) {
    REAL(ftruncate64);
    step(inside_fd(fd));
    return real(fd, length);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    step(inside(to));
    return real(from, to);
}

int renameat(int from_at, const char *from, int to_at, const char *to) {
    REAL(renameat);
    step(inside(to));
    return real(from_at, from, to_at, to);
}

int unlink(const char *path) {
    REAL(unlink);
    step(inside(path));
    return real(path);
}

int unlinkat(int at, const char *path, int flags) {
    REAL(unlinkat);
    step(inside(path));
    return real(at, path, flags);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    step(inside(path));
    return real(path, mode);
}
