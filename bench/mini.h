/* What the benchmark's two programs share: spans, a scan of JSON, HTTP heads. */
#ifndef MINI_H
#define MINI_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MODERN "2026-07-28"
#define LEGACY "2025-11-25"
#define META "io.modelcontextprotocol/"

typedef struct {
    const char *at; /* NULL: absent */
    size_t len;
} span;

static inline span text_span(const char *text) { return (span){text, strlen(text)}; }

static inline bool same(span s, const char *text) {
    return s.at && s.len == strlen(text) && !memcmp(s.at, text, s.len);
}

/* ---- bytes that grow ---- */

typedef struct {
    char *at;
    size_t len, cap;
} bytes;

static void reserve(bytes *b, size_t more) {
    if (b->len + more <= b->cap) return;
    b->cap = (b->len + more) * 2 + 4096;
    if (!(b->at = realloc(b->at, b->cap))) abort();
}

static inline void put(bytes *b, const char *at, size_t len) {
    reserve(b, len);
    memcpy(b->at + b->len, at, len);
    b->len += len;
}

__attribute__((format(printf, 2, 3))) static inline void putf(bytes *b, const char *form, ...) {
    va_list args;
    reserve(b, 1024);
    for (;;) {
        va_start(args, form);
        size_t need = (size_t)vsnprintf(b->at + b->len, b->cap - b->len, form, args);
        va_end(args);
        if (need < b->cap - b->len) {
            b->len += need;
            return;
        }
        reserve(b, need + 1);
    }
}

static inline void drop(bytes *b, size_t len) {
    b->len -= len;
    memmove(b->at, b->at + len, b->len);
}

/* ---- JSON, by scanning; keys are compared as written ---- */

static inline const char *past_blank(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

static const char *past_string(const char *p, const char *end) { /* p is behind the opening quote */
    while (p < end && *p != '"') p += *p == '\\' ? 2 : 1;
    return p < end ? p + 1 : NULL;
}

static const char *past_value(const char *p, const char *end) {
    int depth = 0;
    while (p < end) {
        switch (*p) {
        case '"':
            if (!(p = past_string(p + 1, end))) return NULL;
            if (!depth) return p;
            continue;
        case '{':
        case '[':
            depth++;
            break;
        case '}':
        case ']':
            if (!depth) return p;
            if (!--depth) return p + 1;
            break;
        case ',':
        case ' ':
        case '\n':
        case '\r':
        case '\t':
            if (!depth) return p;
        }
        p++;
    }
    return depth ? NULL : p;
}

/* The raw value of one member of an object, or an absent span. */
static inline span member(span object, const char *key) {
    const char *p = object.at, *end = p + object.len;
    size_t key_len = strlen(key);
    if (!p) return (span){0};
    p = past_blank(p, end);
    if (p == end || *p++ != '{') return (span){0};
    for (;;) {
        p = past_blank(p, end);
        if (p == end || *p != '"') return (span){0};
        const char *name = p + 1;
        if (!(p = past_string(name, end))) return (span){0};
        size_t name_len = (size_t)(p - 1 - name);
        p = past_blank(p, end);
        if (p == end || *p++ != ':') return (span){0};
        const char *value = past_blank(p, end);
        if (value == end || !(p = past_value(value, end)) || p == value) return (span){0};
        if (name_len == key_len && !memcmp(name, key, key_len))
            return (span){value, (size_t)(p - value)};
        p = past_blank(p, end);
        if (p == end || *p++ != ',') return (span){0};
    }
}

/* The inside of a JSON string, as written. */
static inline span inside(span string) {
    if (string.len < 2 || *string.at != '"') return (span){0};
    return (span){string.at + 1, string.len - 2};
}

/* ---- HTTP ---- */

/* The value of a header; `head` is everything up to and including the blank line. */
static inline span header(span head, const char *name) {
    const char *p = head.at, *end = p + head.len;
    size_t len = strlen(name);
    while ((p = memchr(p, '\n', (size_t)(end - p))) && ++p < end) {
        if ((size_t)(end - p) <= len || p[len] != ':' || strncasecmp(p, name, len)) continue;
        const char *from = p + len + 1, *to = memchr(from, '\r', (size_t)(end - from));
        if (!to) break;
        while (from < to && *from == ' ') from++;
        while (to > from && to[-1] == ' ') to--;
        return (span){from, (size_t)(to - from)};
    }
    return (span){0};
}

/* ---- the rest ---- */

__attribute__((noreturn, format(printf, 1, 2))) static inline void fail(const char *form, ...) {
    va_list args;
    va_start(args, form);
    vfprintf(stderr, form, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

/* End with the process that started us, and after so many seconds in any case. */
static inline void bounded_life(unsigned seconds) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_IGN);
    alarm(seconds);
}

static inline struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static inline void without_delay(int fd) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

#endif
