/* A cheap load: keep-alive connections to a loopback address, each with one tools/call after
 * another, each answer checked for its own id and its own text.
 *
 *   load --url http://127.0.0.1:PORT/mcp [--era modern|legacy] [--tool NAME] [--connections N]
 *        [--calls N] [--seconds N] [--key KEY] [--steered] [--refused] [--at-least BYTES]
 *        [--fresh connection|session] [--idle N] [--idle-sessions N] [--lossy] [--differing HEADER]
 *
 * A legacy connection is a client of its own: it initializes and keeps its session, if it gets one. Every
 * connection counts its ids from 1, so the same id is in flight from many clients at once.
 * A run ends after so many calls or seconds, whichever comes first, and prints one line of JSON.
 * With --refused a call may be refused for its rate; how many were is in the line of JSON.
 * With --at-least each answer has so many bytes, and the call's text again at its end.
 * With --steered it connects, prints "ready", and makes a run for each line of standard input
 * that holds a number of calls.
 * With --fresh each call comes on a new connection, of the same session or with one of its own.
 * With --idle so many more connections have each made one call and stay open, and with --idle-sessions
 * so many more sessions stay open, whose connections are closed.
 * With --lossy a connection that the other end closes is opened again and its call made once more; how often is in
 * the line of JSON.
 * With --differing each request has this header, with a value of its own, shaped as a traceparent's.
 */
#include "mini.h"

enum { STALL_SECONDS = 20 };

typedef enum { HELLO, GREETED, READY } stage_t;

typedef struct {
    int fd;
    stage_t stage;
    long id;
    uint64_t since;
    bytes in, session;
    char text[64];
} client_t;

typedef struct {
    int status;
    span head, body;
} response_t;

static char host[64];
static const char *path = "/mcp", *tool = "echo", *key, *differing;
static bool legacy, may_be_refused, lossy, fresh, fresh_session;
static client_t *clients;
static struct sockaddr_in address;
static int connections = 16, poller;
static long started, refused, lost, at_least;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- requests: the headers and the layout of the official Python SDK's client ---- */

static void send_request(client_t *c, const char *method, const char *name, const bytes *body) {
    static bytes out;
    out.len = 0;
    putf(&out, "POST %s HTTP/1.1\r\nHost: %s\r\nAccept-Encoding: identity\r\n"
         "Connection: keep-alive\r\nUser-Agent: toolgate-bench\r\n"
         "accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n",
         path, host);
    if (!legacy) {
        putf(&out, "mcp-protocol-version: " MODERN "\r\nmcp-method: %s\r\n", method);
        if (name) putf(&out, "mcp-name: %s\r\n", name);
    } else if (c->session.len) {
        putf(&out, "mcp-session-id: %.*s\r\nmcp-protocol-version: " LEGACY "\r\n",
             (int)c->session.len, c->session.at);
    }
    if (key) putf(&out, "authorization: Bearer %s\r\n", key);
    if (differing) {
        static uint64_t requests = 1;
        putf(&out, "%s: 00-%016llx%016llx-%016llx-01\r\n", differing, (unsigned long long)getpid(),
             (unsigned long long)(requests * 0x9e3779b97f4a7c15), (unsigned long long)requests);
        requests++;
    }
    putf(&out, "Content-Length: %zu\r\n\r\n", body->len);
    put(&out, body->at, body->len);
    for (size_t sent = 0; sent < out.len;) {
        ssize_t n = send(c->fd, out.at + sent, out.len - sent, MSG_NOSIGNAL);
        if (n < 0 && lossy) return; /* seen when its answer is read */
        if (n < 0) fail("cannot send: %s", strerror(errno));
        sent += (size_t)n;
    }
}

static void send_call(client_t *c) {
    static bytes body;
    body.len = 0;
    snprintf(c->text, sizeof c->text, "call %ld of client %d", ++c->id, (int)(c - clients));
    putf(&body, "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"method\":\"tools/call\",\"params\":{\"name\":\"%s\","
         "\"arguments\":{\"text\":\"%s\"}%s}}", c->id, tool, c->text,
         legacy ? ""
                : ",\"_meta\":{\"" META "protocolVersion\":\"" MODERN "\",\"" META
                  "clientInfo\":{\"name\":\"bench\",\"version\":\"1.0.0\"},\"" META
                  "clientCapabilities\":{}}");
    if (!fresh) c->since = now();
    send_request(c, "tools/call", tool, &body);
    started++;
}

/* ---- responses ---- */

/* How many bytes the response at the start of `in` takes, or 0 while it is not whole.
 * The body is good until the next call. */
static size_t parse(span in, response_t *r) {
    static bytes whole;
    char *blank = memmem(in.at, in.len, "\r\n\r\n", 4);
    if (!blank) return 0;
    r->head = (span){in.at, (size_t)(blank + 4 - in.at)};
    if (in.len < 12 || memcmp(in.at, "HTTP/1.1 ", 9)) fail("not HTTP/1.1: %.40s", in.at);
    r->status = atoi(in.at + 9);
    span length = header(r->head, "Content-Length");
    if (!header(r->head, "Transfer-Encoding").at) {
        size_t size = length.at ? strtoul(length.at, NULL, 10) : 0;
        r->body = (span){in.at + r->head.len, size};
        return in.len < r->head.len + size ? 0 : r->head.len + size;
    }
    const char *p = r->head.at + r->head.len, *end = in.at + in.len;
    whole.len = 0;
    for (;;) {
        const char *line = memmem(p, (size_t)(end - p), "\r\n", 2);
        if (!line) return 0;
        size_t size = strtoul(p, NULL, 16);
        p = line + 2;
        if ((size_t)(end - p) < size + 2) return 0;
        put(&whole, p, size);
        p += size + 2;
        if (size) continue;
        r->body = (span){whole.at, whole.len};
        return (size_t)(p - in.at);
    }
}

/* The JSON-RPC message: the body, or the last event of a stream. */
static span message(const response_t *r) {
    span type = header(r->head, "Content-Type"), found = r->body;
    if (type.len < 17 || strncasecmp(type.at, "text/event-stream", 17)) return found;
    const char *p = r->body.at, *end = p + r->body.len;
    while (p < end) {
        const char *line = memchr(p, '\n', (size_t)(end - p));
        if (!line) line = end;
        if (line - p > 5 && !memcmp(p, "data:", 5)) found = (span){p + 5, (size_t)(line - p - 5)};
        p = line + 1;
    }
    return found;
}

/* Nothing of a large answer is missing. */
static bool whole(const client_t *c, span m) {
    size_t tail = m.len < 512 ? m.len : 512;
    return !at_least ||
           (m.len >= (size_t)at_least && memmem(m.at + m.len - tail, tail, c->text, strlen(c->text)));
}

static void check(const client_t *c, const response_t *r) {
    span m = message(r), answer = member(m, "result"), content = member(answer, "content");
    char id[24];
    snprintf(id, sizeof id, "%ld", c->id);
    span error = member(m, "error");
    if (may_be_refused && error.len && same(member(m, "id"), id) &&
        same(inside(member(member(error, "data"), "code")), "RATE_LIMITED")) {
        refused++;
        return;
    }
    if (content.len) { /* the first block, without the bracket */
        content.at++;
        content.len--;
    }
    if (r->status != 200 || !same(member(m, "id"), id) ||
        !same(inside(member(content, "text")), c->text) || same(member(answer, "isError"), "true") ||
        (!legacy && !same(inside(member(answer, "resultType")), "complete")) || !whole(c, m))
        fail("call %ld, text \"%s\", got HTTP %d with: %.*s", c->id, c->text, r->status,
             (int)(m.len < 1000 ? m.len : 1000), m.at);
}

static void open_again(client_t *c);

/* Take what has arrived; true once `r` holds a whole response, *size bytes long. */
static bool take(client_t *c, response_t *r, size_t *size) {
    reserve(&c->in, 16384);
    ssize_t got = recv(c->fd, c->in.at + c->in.len, c->in.cap - c->in.len, 0);
    if (got <= 0 && lossy) {
        lost++;
        started--;
        open_again(c);
        return false;
    }
    if (got == 0) fail("the server has closed a connection");
    if (got < 0) fail("cannot receive: %s", strerror(errno));
    c->in.len += (size_t)got;
    *size = parse((span){c->in.at, c->in.len}, r);
    return *size > 0;
}

/* ---- a client's beginning ---- */

static void dial(client_t *c) {
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (const struct sockaddr *)&address, sizeof address))
        fail("cannot connect: %s", strerror(errno));
    without_delay(c->fd);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){STALL_SECONDS, 0},
               sizeof(struct timeval));
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = c});
}

/* Say what comes before the first call, if anything does. */
static void greet(client_t *c) {
    static const char hello[] =
        "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{"
        "\"protocolVersion\":\"" LEGACY "\",\"capabilities\":{},\"clientInfo\":{"
        "\"name\":\"bench\",\"version\":\"1.0.0\"}}}";
    c->stage = legacy && !c->session.len ? HELLO : READY;
    if (c->stage == HELLO)
        send_request(c, "initialize", NULL, &(bytes){(char *)hello, sizeof hello - 1, 0});
}

/* The answer to what was said before the first call; true once the client may call. */
static bool greeted(client_t *c, const response_t *r) {
    static const char initialized[] = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}";
    if (c->stage == GREETED) {
        if (r->status / 100 != 2) fail("notifications/initialized: HTTP %d", r->status);
        c->stage = READY;
        return true;
    }
    span session = header(r->head, "Mcp-Session-Id"), m = message(r);
    if (r->status != 200 || !same(member(m, "id"), "0") || !member(m, "result").at)
        fail("initialize: HTTP %d with: %.*s", r->status, (int)r->body.len, r->body.at);
    c->session.len = 0;
    put(&c->session, session.at, session.len);
    c->stage = GREETED;
    send_request(c, "notifications/initialized", NULL, &(bytes){(char *)initialized, sizeof initialized - 1, 0});
    return false;
}

/* Whether it ends with its answer. */
static bool closes(const response_t *r) {
    span connection = header(r->head, "Connection");
    return connection.len == 5 && !strncasecmp(connection.at, "close", 5);
}

static void hang_up(client_t *c) {
    close(c->fd);
    c->fd = -1;
    c->in.len = 0;
}

/* A new connection, and the next call on it as soon as the client may. */
static void open_again(client_t *c) {
    c->since = now();
    hang_up(c);
    if (fresh_session) c->session.len = 0;
    dial(c);
    greet(c);
    if (c->stage == READY)
        send_call(c);
    else
        started++; /* its call is on the way */
}

/* Wait for one answer of a client that nobody else waits beside. */
static void await_answer(client_t *c, response_t *r) {
    size_t size;
    while (!take(c, r, &size)) {}
    drop(&c->in, size);
}

static void begin(client_t *c) {
    response_t r;
    dial(c);
    greet(c);
    while (c->stage != READY) {
        await_answer(c, &r);
        greeted(c, &r);
    }
}

/* Sessions that stay open, over one connection after the other. */
static void open_sessions(long count) {
    client_t each = {0};
    dial(&each);
    for (response_t r; count--;) {
        each.session.len = 0;
        greet(&each);
        while (each.stage != READY) {
            await_answer(&each, &r);
            if (closes(&r)) {
                hang_up(&each);
                dial(&each);
            }
            greeted(&each, &r);
        }
    }
    hang_up(&each);
}

/* Connections that stay open, each known by a call that it has made. */
static void open_connections(client_t *idle, long count) {
    for (response_t r; count--; idle++) {
        if (clients->session.len) put(&idle->session, clients->session.at, clients->session.len);
        begin(idle);
        send_call(idle);
        await_answer(idle, &r);
        check(idle, &r);
        epoll_ctl(poller, EPOLL_CTL_DEL, idle->fd, NULL);
    }
}

/* ---- a run ---- */

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double microseconds(const uint64_t *took, long calls, double share) {
    long at = (long)(share * (double)calls);
    return took[at < calls ? at : calls - 1] / 1000.0;
}

static void run(long calls, unsigned seconds) {
    long done = 0;
    uint64_t *took = malloc(sizeof *took * (size_t)calls);
    alarm(seconds + STALL_SECONDS + 10);
    uint64_t begun = now(), until = begun + seconds * 1000000000ull, at = begun;
    started = refused = lost = 0;
    for (int i = 0; i < connections && started < calls; i++) {
        if (fresh) open_again(&clients[i]);
        else send_call(&clients[i]);
    }
    while (done < started) {
        struct epoll_event events[256];
        int n = epoll_wait(poller, events, 256, STALL_SECONDS * 1000);
        if (n == 0) fail("no answer for %d s; %ld calls are open", STALL_SECONDS, started - done);
        for (int i = 0; i < n; i++) {
            client_t *c = events[i].data.ptr;
            response_t r;
            size_t size;
            if (!take(c, &r, &size)) continue;
            if (c->stage != READY) {
                bool may_call = greeted(c, &r);
                drop(&c->in, size);
                if (may_call) {
                    started--;
                    send_call(c);
                }
                continue;
            }
            at = now();
            check(c, &r);
            took[done++] = at - c->since;
            drop(&c->in, size);
            if (c->in.len) fail("bytes behind the answer: %.*s", (int)c->in.len, c->in.at);
            bool more = started < calls && at < until;
            if (more && (fresh || (lossy && closes(&r)))) open_again(c);
            else if (more) send_call(c);
        }
    }
    alarm(0);
    double took_all = (double)(at - begun) / 1e9;
    qsort(took, (size_t)done, sizeof *took, by_size);
    printf("{\"calls\":%ld,\"seconds\":%.4f,\"rate\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f,"
           "\"longest_us\":%.1f,\"refused\":%ld,\"lost\":%ld}\n",
           done, took_all, (double)done / took_all, microseconds(took, done, .5), microseconds(took, done, .99),
           microseconds(took, done, 1), refused, lost);
    fflush(stdout);
    free(took);
}

int main(int argc, char **argv) {
    long calls = 10000, idle = 0, idle_sessions = 0;
    unsigned seconds = 10;
    const char *url = "";
    bool steered = false, may_lose = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--steered")) {
            steered = true;
            continue;
        }
        if (!strcmp(argv[i], "--refused")) {
            may_be_refused = true;
            continue;
        }
        if (!strcmp(argv[i], "--lossy")) {
            may_lose = true;
            continue;
        }
        if (!strcmp(argv[i], "--url")) url = value;
        else if (!strcmp(argv[i], "--era")) legacy = !strcmp(value, "legacy");
        else if (!strcmp(argv[i], "--tool")) tool = value;
        else if (!strcmp(argv[i], "--connections")) connections = atoi(value);
        else if (!strcmp(argv[i], "--key")) key = value;
        else if (!strcmp(argv[i], "--calls")) calls = atol(value);
        else if (!strcmp(argv[i], "--at-least")) at_least = atol(value);
        else if (!strcmp(argv[i], "--idle")) idle = atol(value);
        else if (!strcmp(argv[i], "--idle-sessions")) idle_sessions = atol(value);
        else if (!strcmp(argv[i], "--fresh")) fresh = true, fresh_session = !strcmp(value, "session");
        else if (!strcmp(argv[i], "--differing")) differing = value;
        else if (!strcmp(argv[i], "--seconds")) seconds = (unsigned)atoi(value);
        else fail("load: what is %s?", argv[i]);
        i++;
    }
    static const char scheme[] = "http://127.0.0.1:";
    if (strncmp(url, scheme, sizeof scheme - 1)) fail("--url must begin with %s", scheme);
    if (connections < 1 || connections > 1024 || calls < 1 || calls > 10000000 || seconds > 600 || idle < 0 ||
        idle > 16000 || idle_sessions < 0 || idle_sessions > 100000)
        fail("at most 1024 connections, 10000000 calls, 600 seconds, 16000 more connections, 100000 more sessions");
    const char *rest = strchr(url + sizeof scheme - 1, '/');
    if (rest) path = rest;
    snprintf(host, sizeof host, "127.0.0.1:%d", atoi(url + sizeof scheme - 1));

    bounded_life(60 + (unsigned)(idle + idle_sessions) / 50);
    poller = epoll_create1(EPOLL_CLOEXEC);
    clients = calloc((size_t)(connections + idle), sizeof *clients);
    address = loopback(atoi(url + sizeof scheme - 1));
    for (int i = 0; i < connections; i++) begin(&clients[i]);
    open_connections(clients + connections, idle);
    if (legacy) open_sessions(idle_sessions);
    lossy = may_lose;
    if (!steered) {
        run(calls, seconds);
        return 0;
    }
    puts("ready");
    fflush(stdout);
    alarm(0);
    char line[32];
    while (fgets(line, sizeof line, stdin))
        if ((calls = atol(line)) > 0 && calls <= 10000000) run(calls, seconds);
}
