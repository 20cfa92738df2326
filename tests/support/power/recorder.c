/* Records, in the order of the calls, what a process does to the files of one folder.
 *
 * Preloaded. RECORD_FOLDER is the folder (absolute, no slash at its end), RECORD_LOG the file that
 * gets the records: a header as below, the name within the folder, the bytes written.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct header {
    char what; /* W write, T truncate, S sync, U unlink, R rename (the bytes are the new name) */
    uint8_t name;
    uint16_t unused;
    uint32_t bytes;
    uint64_t at; /* offset, or length to truncate to */
} __attribute__((packed));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static char folder[PATH_MAX];

#define REAL(name) \
    static __typeof__(name) *real_##name; \
    if (!real_##name) real_##name = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *where = getenv("RECORD_FOLDER"), *log = getenv("RECORD_LOG");
    if (!where || !log) return;
    REAL(open);
    snprintf(folder, sizeof folder, "%s/", where);
    log_fd = real_open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0) abort();
}

/* The name within the folder; NULL for files elsewhere. */
static const char *within(const char *path) {
    size_t length = strlen(folder);
    return length > 1 && path && strncmp(path, folder, length) == 0 ? path + length : NULL;
}

static const char *name_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = log_fd < 0 ? -1 : readlink(link, path, PATH_MAX - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    return within(path);
}

static void record(char what, const char *name, uint64_t at, const void *data, size_t bytes) {
    REAL(writev);
    struct header header = {what, (uint8_t)strlen(name), 0, (uint32_t)bytes, at};
    struct iovec parts[] = {
        {&header, sizeof header}, {(void *)name, strlen(name)}, {(void *)data, bytes}};
    if (real_writev(log_fd, parts, 3) != (ssize_t)(sizeof header + strlen(name) + bytes)) abort();
}

/* The call and its record are one step, so that the log has the order of the calls. */
#define RECORDED(fd, call, what, at, data, bytes) \
    do { \
        char path[PATH_MAX]; \
        const char *name = name_of(fd, path); \
        if (!name) return call; \
        pthread_mutex_lock(&lock); \
        ssize_t result = call; \
        if (result >= 0) record(what, name, at, data, bytes); \
        pthread_mutex_unlock(&lock); \
        return result; \
    } while (0)

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t at) {
    REAL(pwrite64);
    RECORDED(fd, real_pwrite64(fd, data, bytes, at), 'W', at, data, (size_t)result);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) {
    REAL(pwrite);
    RECORDED(fd, real_pwrite(fd, data, bytes, at), 'W', at, data, (size_t)result);
}

ssize_t write(int fd, const void *data, size_t bytes) {
    REAL(write);
    RECORDED(fd, real_write(fd, data, bytes), 'W', lseek(fd, 0, SEEK_CUR) - result, data,
             (size_t)result);
}

int ftruncate64(int fd, off64_t length) {
    REAL(ftruncate64);
    RECORDED(fd, real_ftruncate64(fd, length), 'T', length, "", 0);
}

int ftruncate(int fd, off_t length) {
    REAL(ftruncate);
    RECORDED(fd, real_ftruncate(fd, length), 'T', length, "", 0);
}

int fsync(int fd) {
    REAL(fsync);
    RECORDED(fd, real_fsync(fd), 'S', 0, "", 0);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    RECORDED(fd, real_fdatasync(fd), 'S', 0, "", 0);
}

int unlink(const char *path) {
    REAL(unlink);
    const char *name = within(path);
    if (!name) return real_unlink(path);
    pthread_mutex_lock(&lock);
    int result = real_unlink(path);
    if (result == 0) record('U', name, 0, "", 0);
    pthread_mutex_unlock(&lock);
    return result;
}
