/* Preloaded into a server: while the file that PGMQTT_TEST_DISK_FULL names exists, files below base/
 * do not grow (ENOSPC), as on a full disk. What they have can be written. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_full(int fd, off_t end) {
    const char* trigger = getenv("PGMQTT_TEST_DISK_FULL");
    char link[64], path[4096];
    struct stat now;
    int saved = errno, full = 0;
    if (trigger != NULL && access(trigger, F_OK) == 0 && fstat(fd, &now) == 0 && end > now.st_size) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1);
        path[length < 0 ? 0 : length] = '\0';
        full = strstr(path, "/base/") != NULL;
    }
    errno = saved;
    return full;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
    static __typeof__(&pwrite) next;
    if (next == NULL) next = NEXT(pwrite);
    if (is_full(fd, offset + (off_t)size)) return errno = ENOSPC, -1;
    return next(fd, data, size, offset);
}

ssize_t pwritev(int fd, const struct iovec* parts, int count, off_t offset) {
    static __typeof__(&pwritev) next;
    off_t end = offset;
    if (next == NULL) next = NEXT(pwritev);
    for (int i = 0; i < count; ++i) end += (off_t)parts[i].iov_len;
    if (is_full(fd, end)) return errno = ENOSPC, -1;
    return next(fd, parts, count, offset);
}

int posix_fallocate(int fd, off_t offset, off_t size) {
    static __typeof__(&posix_fallocate) next;
    if (next == NULL) next = NEXT(posix_fallocate);
    return is_full(fd, offset + size) ? ENOSPC : next(fd, offset, size);
}

/* The same functions under the names that they have with 64-bit offsets. */
ssize_t pwrite64(int, const void*, size_t, off_t) __attribute__((alias("pwrite")));
ssize_t pwritev64(int, const struct iovec*, int, off_t) __attribute__((alias("pwritev")));
int posix_fallocate64(int, off_t, off_t) __attribute__((alias("posix_fallocate")));
