/*
 * Loaded into a program with LD_PRELOAD. It records in one file, in the order of time, what the program writes to another
 * file, when it has synced that file, and what it sends to its clients. See `recorder.rs` for the form of the records.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MAX_PARTS = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int record_fd = -1;
static const char *recorded_file;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("RECORD_TO");
    recorded_file = getenv("RECORD_FILE");
    if (path && recorded_file) {
        record_fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (record_fd < 0) abort();
    }
}

static int is_socket(int fd) {
    struct stat found;
    return record_fd >= 0 && fstat(fd, &found) == 0 && S_ISSOCK(found.st_mode);
}

static int is_recorded_file(int fd) {
    char link[64], path[PATH_MAX];
    struct stat found;
    if (record_fd < 0 || fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strcmp(path, recorded_file) == 0;
}

/* A record is its kind, an offset, a length, and that many bytes. It takes calls of the kernel, so that it is not recorded. */
static void record(char kind, uint64_t offset, const struct iovec *parts, int count, size_t length) {
    struct iovec all[MAX_PARTS + 1];
    char head[13];
    uint32_t short_length = (uint32_t)length;
    size_t left = length;
    int used = 1;
    head[0] = kind;
    memcpy(head + 1, &offset, 8);
    memcpy(head + 9, &short_length, 4);
    all[0].iov_base = head;
    all[0].iov_len = sizeof head;
    if (count > MAX_PARTS) abort();
    for (int i = 0; i < count && left > 0; i++) {
        size_t taken = parts[i].iov_len < left ? parts[i].iov_len : left;
        all[used].iov_base = parts[i].iov_base;
        all[used].iov_len = taken;
        left -= taken;
        used++;
    }
    pthread_mutex_lock(&lock);
    /* The kernel takes at most 1,024 parts at a time. */
    for (int at = 0; at < used; at += 512) {
        int some = used - at < 512 ? used - at : 512;
        size_t expected = 0;
        for (int i = at; i < at + some; i++) expected += all[i].iov_len;
        if (syscall(SYS_writev, record_fd, all + at, some) != (long)expected) abort();
    }
    pthread_mutex_unlock(&lock);
}

#define NEXT(name) ({ static __typeof__(&name) next; if (!next) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name); next; })

static void wrote(int fd, uint64_t offset, const struct iovec *parts, int count, ssize_t done) {
    if (done > 0 && is_recorded_file(fd))
        record(fcntl(fd, F_GETFL) & O_DSYNC ? 'D' : 'W', offset, parts, count, (size_t)done);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    struct iovec part = {(void *)bytes, length};
    ssize_t done = NEXT(pwrite)(fd, bytes, length, offset);
    wrote(fd, (uint64_t)offset, &part, 1, done);
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    struct iovec part = {(void *)bytes, length};
    ssize_t done = NEXT(pwrite64)(fd, bytes, length, offset);
    wrote(fd, (uint64_t)offset, &part, 1, done);
    return done;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    ssize_t done = NEXT(pwritev)(fd, parts, count, offset);
    wrote(fd, (uint64_t)offset, parts, count, done);
    return done;
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    ssize_t done = NEXT(pwritev64)(fd, parts, count, offset);
    wrote(fd, (uint64_t)offset, parts, count, done);
    return done;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    struct iovec part = {(void *)bytes, length};
    if (is_socket(fd)) record('A', 0, &part, 1, length);
    ssize_t done = NEXT(write)(fd, bytes, length);
    if (done > 0 && is_recorded_file(fd)) wrote(fd, (uint64_t)(lseek(fd, 0, SEEK_CUR) - done), &part, 1, done);
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    size_t length = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    if (is_socket(fd)) record('A', 0, parts, count, length);
    ssize_t done = NEXT(writev)(fd, parts, count);
    if (done > 0 && is_recorded_file(fd)) wrote(fd, (uint64_t)(lseek(fd, 0, SEEK_CUR) - done), parts, count, done);
    return done;
}

ssize_t send(int fd, const void *bytes, size_t length, int flags) {
    struct iovec part = {(void *)bytes, length};
    if (is_socket(fd)) record('A', 0, &part, 1, length);
    return NEXT(send)(fd, bytes, length, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    size_t length = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++) length += message->msg_iov[i].iov_len;
    if (is_socket(fd)) record('A', 0, message->msg_iov, (int)message->msg_iovlen, length);
    return NEXT(sendmsg)(fd, message, flags);
}

static int sync_with(int (*sync)(int), int fd) {
    int is_ours = is_recorded_file(fd);
    if (is_ours) record('B', 0, NULL, 0, 0);
    int failed = sync(fd);
    if (is_ours && !failed) record('E', 0, NULL, 0, 0);
    return failed;
}

int fsync(int fd) { return sync_with(NEXT(fsync), fd); }

int fdatasync(int fd) { return sync_with(NEXT(fdatasync), fd); }
