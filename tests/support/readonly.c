/* Preloaded into a process, it makes files read-only in mid-work, as a disk error makes a file system:
 * once READONLY_FLAG exists, writing to a file whose path begins with READONLY_PATH fails with EROFS. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int refused(int fd) {
    const char *flag = getenv("READONLY_FLAG"), *path = getenv("READONLY_PATH");
    char link[64], name[PATH_MAX + 1];
    if (!flag || !path || access(flag, F_OK))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, PATH_MAX);
    if (length < 0)
        return 0;
    name[length] = 0;
    if (strncmp(name, path, strlen(path)))
        return 0;
    errno = EROFS;
    return 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t count) {
    return refused(fd) ? -1 : NEXT(write)(fd, data, count);
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t offset) {
    return refused(fd) ? -1 : NEXT(pwrite)(fd, data, count, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t offset) {
    return refused(fd) ? -1 : NEXT(pwrite64)(fd, data, count, offset);
}

int ftruncate(int fd, off_t length) {
    return refused(fd) ? -1 : NEXT(ftruncate)(fd, length);
}

int ftruncate64(int fd, off64_t length) {
    return refused(fd) ? -1 : NEXT(ftruncate64)(fd, length);
}
