/* A cheap MCP server over Streamable HTTP: one thread, epoll, keep-alive, loopback only.
 *
 *   upstream [--legacy] [--port N] [--tools N] [--seconds N] [--sse] [--shapes] [--stdio]
 *
 * It speaks 2026-07-28, or with --legacy 2025-11-25 (initialize and a session id), and is strict
 * about each, so that a gateway that talks in the wrong form fails here and is not measured.
 * With --sse it answers calls with a stream of one event, in chunks. With --stdio it speaks 2025-11-25
 * in lines over standard input and output. With --shapes it has tools whose results look like
 * those of real servers (see shapes.h).
 */
#include "mini.h"
#include "shapes.h"

enum { MAX_BODY = 64 << 20, MAX_HEAD = 64 << 10 };

typedef struct {
    int fd;
    bool waits_to_write, closes;
    bytes in, out;
} link_t;

static bool legacy, streams, over_stdio, shaped;
static long sessions;
static bytes tools;
static int poller;

#define ECHO_SCHEMA                                                                                \
    "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\",\"description\":"          \
    "\"What to say\"}},\"required\":[\"text\"]}"
#define SERVER "{\"name\":\"bench-upstream\",\"version\":\"1.0.0\"}"
#define CACHE "\"ttlMs\":300000,\"cacheScope\":\"public\""

static void write_tools(int count) {
    putf(&tools, "{%s\"tools\":[", legacy ? "" : "\"resultType\":\"complete\"," CACHE ",");
    putf(&tools, "{\"name\":\"echo\",\"description\":\"Says it again\",\"inputSchema\":%s}",
         ECHO_SCHEMA);
    for (int i = 1; i < count; i++)
        putf(&tools, ",{\"name\":\"tool_%d\",\"description\":\"Tool %d of many, to make lists long\","
             "\"inputSchema\":%s}", i, i, ECHO_SCHEMA);
    for (size_t i = 0; shaped && i < SHAPES; i++)
        putf(&tools, ",{\"name\":\"%s\",\"description\":\"%s\",\"inputSchema\":%s}", shapes[i].tool,
             shapes[i].like, ECHO_SCHEMA);
    putf(&tools, "]}");
}

/* ---- answers ---- */

static void answer_bare(link_t *l, const char *status, const char *more) {
    if (!over_stdio) putf(&l->out, "HTTP/1.1 %s\r\n%sContent-Length: 0\r\n\r\n", status, more);
}

static void answer(link_t *l, const char *status, const char *more, span id, const char *kind,
                   span value) {
    static const char form[] = "{\"jsonrpc\":\"2.0\",\"id\":";
    if (!id.at) id = text_span("null");
    size_t len = sizeof form - 1 + id.len + 2 + strlen(kind) + 2 + value.len + 1;
    static const char event[] = "event: message\ndata: ";
    bool as_event = streams && !strcmp(kind, "result");
    if (as_event)
        putf(&l->out, "HTTP/1.1 %s\r\nContent-Type: text/event-stream\r\n%sTransfer-Encoding: chunked\r\n\r\n"
             "%zx\r\n%s", status, more, sizeof event - 1 + len + 2, event);
    else if (!over_stdio)
        putf(&l->out, "HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n",
             status, more, len);
    put(&l->out, form, sizeof form - 1);
    put(&l->out, id.at, id.len);
    put(&l->out, ",\"", 2);
    put(&l->out, kind, strlen(kind));
    put(&l->out, "\":", 2);
    put(&l->out, value.at, value.len);
    put(&l->out, "}", 1);
    if (as_event) putf(&l->out, "\n\n\r\n0\r\n\r\n");
    if (over_stdio) put(&l->out, "\n", 1);
}

static void result(link_t *l, const char *more, span id, span value) {
    answer(l, "200 OK", more, id, "result", value);
}

static void error(link_t *l, const char *status, span id, int code, const char *why) {
    char value[256];
    snprintf(value, sizeof value, "{\"code\":%d,\"message\":\"%s\"}", code, why);
    answer(l, status, "", id, "error", text_span(value));
}

static void call_tool(link_t *l, span id, span params) {
    static bytes value;
    span text = member(member(params, "arguments"), "text");
    span name = inside(member(params, "name"));
    const shape_t *shape = shaped ? shape_of(name) : NULL;
    if ((!shape && !same(name, "echo")) || !inside(text).at) {
        error(l, legacy ? "200 OK" : "400 Bad Request", id, -32602,
              "no such tool, or no string in arguments.text");
        return;
    }
    value.len = 0;
    putf(&value, "{%s\"content\":[{\"type\":\"text\",\"text\":",
         legacy ? "" : "\"resultType\":\"complete\",");
    put(&value, text.at, text.len);
    put(&value, "}", 1);
    if (shape) {
        put_shape(&value, shape);
        putf(&value, ",{\"type\":\"text\",\"text\":"); /* again at the end: a cut answer is noticed */
        put(&value, text.at, text.len);
        put(&value, "}", 1);
    }
    put(&value, "]}", 2);
    result(l, "", id, (span){value.at, value.len});
}

static void serve_legacy(link_t *l, span head, span id, span method, span params) {
    if (same(method, "initialize")) {
        char more[64];
        snprintf(more, sizeof more, "Mcp-Session-Id: bench-%ld\r\n", ++sessions);
        result(l, more, id,
               text_span("{\"protocolVersion\":\"" LEGACY "\",\"capabilities\":{\"tools\":{}},"
                         "\"serverInfo\":" SERVER "}"));
        return;
    }
    if (same(method, "server/discover")) {
        error(l, "200 OK", id, -32601, "no such method: server/discover");
        return;
    }
    span session = header(head, "Mcp-Session-Id");
    if (!session.at && !over_stdio) {
        error(l, "400 Bad Request", id, -32600, "Mcp-Session-Id is missing");
        return;
    }
    long number = session.len > 6 && !memcmp(session.at, "bench-", 6) ? atol(session.at + 6) : 0;
    if (!over_stdio && (number < 1 || number > sessions)) {
        error(l, "404 Not Found", id, -32600, "no such session");
        return;
    }
    if (!id.at || !method.at) /* a notification, or an answer to a question that we did not ask */
        answer_bare(l, "202 Accepted", "");
    else if (same(method, "tools/call"))
        call_tool(l, id, params);
    else if (same(method, "tools/list"))
        result(l, "", id, (span){tools.at, tools.len});
    else if (same(method, "ping"))
        result(l, "", id, text_span("{}"));
    else
        error(l, "200 OK", id, -32601, "no such method");
}

static void serve_modern(link_t *l, span head, span id, span method, span params) {
    if (!id.at) {
        answer_bare(l, "202 Accepted", "");
        return;
    }
    span said = header(head, "Mcp-Method"), version = header(head, "MCP-Protocol-Version");
    span meta = inside(member(member(params, "_meta"), META "protocolVersion"));
    if (same(method, "initialize")) {
        error(l, "404 Not Found", id, -32601, "no such method: initialize");
    } else if (!meta.at) {
        error(l, "400 Bad Request", id, -32602, "_meta has no protocolVersion");
    } else if (!same(version, MODERN) || !same(meta, MODERN) || said.len != method.len ||
               memcmp(said.at, method.at, said.len)) {
        error(l, "400 Bad Request", id, -32020, "MCP-Protocol-Version or Mcp-Method is wrong");
    } else if (same(method, "tools/call")) {
        span name = inside(member(params, "name")), named = header(head, "Mcp-Name");
        if (!name.at || named.len != name.len || memcmp(named.at, name.at, name.len))
            error(l, "400 Bad Request", id, -32020, "Mcp-Name is not the name");
        else
            call_tool(l, id, params);
    } else if (same(method, "tools/list")) {
        result(l, "", id, (span){tools.at, tools.len});
    } else if (same(method, "server/discover")) {
        result(l, "", id,
               text_span("{\"resultType\":\"complete\",\"supportedVersions\":[\"" MODERN "\"],"
                         "\"capabilities\":{\"tools\":{}}," CACHE ",\"_meta\":{\"" META
                         "serverInfo\":" SERVER "}}"));
    } else {
        error(l, "404 Not Found", id, -32601, "no such method");
    }
}

static void serve(link_t *l, span head, span body) {
    span connection = header(head, "Connection");
    if (connection.len == 5 && !strncasecmp(connection.at, "close", 5)) l->closes = true;
    if (strncmp(head.at, "POST ", 5)) {
        if (legacy && !strncmp(head.at, "DELETE ", 7))
            answer_bare(l, "200 OK", "");
        else
            answer_bare(l, "405 Method Not Allowed", legacy ? "Allow: POST, DELETE\r\n" : "Allow: POST\r\n");
        return;
    }
    if (past_blank(body.at, body.at + body.len) == body.at + body.len ||
        *past_blank(body.at, body.at + body.len) != '{') {
        error(l, "400 Bad Request", (span){0}, -32700, "not a JSON object");
        return;
    }
    span id = member(body, "id"), method = inside(member(body, "method"));
    (legacy ? serve_legacy : serve_modern)(l, head, id, method, member(body, "params"));
}

/* ---- connections ---- */

static void hang_up(link_t *l) {
    close(l->fd);
    free(l->in.at);
    free(l->out.at);
    free(l);
}

static bool flush(link_t *l) {
    while (l->out.len) {
        ssize_t sent = send(l->fd, l->out.at, l->out.len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) break;
        if (sent < 0) return false;
        drop(&l->out, (size_t)sent);
    }
    if ((l->out.len > 0) != l->waits_to_write) {
        l->waits_to_write = l->out.len > 0;
        struct epoll_event e = {.events = l->waits_to_write ? EPOLLOUT : EPOLLIN, .data.ptr = l};
        epoll_ctl(poller, EPOLL_CTL_MOD, l->fd, &e);
    }
    return l->out.len || !l->closes;
}

/* Serve every whole request that has arrived; false: the connection is to be closed. */
static bool serve_all(link_t *l) {
    size_t done = 0;
    while (done < l->in.len && !l->closes) {
        char *start = l->in.at + done, *blank = memmem(start, l->in.len - done, "\r\n\r\n", 4);
        if (!blank) {
            if (l->in.len - done > MAX_HEAD) return false;
            break;
        }
        span head = {start, (size_t)(blank + 4 - start)};
        span length = header(head, "Content-Length");
        size_t body = length.at ? strtoul(length.at, NULL, 10) : 0;
        if (header(head, "Transfer-Encoding").at || body > MAX_BODY) {
            l->closes = true;
            answer_bare(l, "411 Length Required", "Connection: close\r\n");
            break;
        }
        if (l->in.len - done < head.len + body) break;
        serve(l, head, (span){start + head.len, body});
        done += head.len + body;
    }
    if (done) drop(&l->in, done);
    return flush(l);
}

/* Lines of standard input, until it ends. */
static void serve_stdio(void) {
    link_t l = {.fd = STDIN_FILENO};
    for (;;) {
        reserve(&l.in, 65536);
        ssize_t got = read(STDIN_FILENO, l.in.at + l.in.len, l.in.cap - l.in.len);
        if (got <= 0) return;
        l.in.len += (size_t)got;
        size_t done = 0;
        for (char *line; (line = memchr(l.in.at + done, '\n', l.in.len - done));) {
            span body = {l.in.at + done, (size_t)(line - l.in.at) - done};
            serve_legacy(&l, (span){"", 0}, member(body, "id"), inside(member(body, "method")), member(body, "params"));
            done = (size_t)(line + 1 - l.in.at);
        }
        drop(&l.in, done);
        for (size_t sent = 0; sent < l.out.len;) {
            ssize_t n = write(STDOUT_FILENO, l.out.at + sent, l.out.len - sent);
            if (n < 0) return;
            sent += (size_t)n;
        }
        l.out.len = 0;
    }
}

static bool receive(link_t *l) {
    reserve(&l->in, 16384);
    ssize_t got = recv(l->fd, l->in.at + l->in.len, l->in.cap - l->in.len, 0);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    l->in.len += (size_t)got;
    return serve_all(l);
}

int main(int argc, char **argv) {
    int port = 0, count = 1;
    unsigned seconds = 600;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--legacy")) legacy = true;
        else if (!strcmp(argv[i], "--sse")) streams = true;
        else if (!strcmp(argv[i], "--shapes")) shaped = true;
        else if (!strcmp(argv[i], "--stdio")) over_stdio = legacy = true;
        else if (i + 1 < argc && !strcmp(argv[i], "--port")) port = atoi(argv[++i]);
        else if (i + 1 < argc && !strcmp(argv[i], "--tools")) count = atoi(argv[++i]);
        else if (i + 1 < argc && !strcmp(argv[i], "--seconds")) seconds = (unsigned)atoi(argv[++i]);
        else fail("usage: upstream [--legacy] [--port N] [--tools N] [--seconds N] [--sse] [--shapes] [--stdio]");
    }
    bounded_life(seconds);
    write_tools(count);
    if (over_stdio) {
        serve_stdio();
        return 0;
    }

    int door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = loopback(port);
    socklen_t size = sizeof address;
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(door, (struct sockaddr *)&address, sizeof address) || listen(door, 1024))
        fail("cannot listen: %s", strerror(errno));
    getsockname(door, (struct sockaddr *)&address, &size);
    poller = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(poller, EPOLL_CTL_ADD, door, &(struct epoll_event){.events = EPOLLIN});
    printf("upstream is listening on http://127.0.0.1:%d/mcp\n", ntohs(address.sin_port));
    fflush(stdout);

    for (;;) {
        struct epoll_event events[256];
        int n = epoll_wait(poller, events, 256, -1);
        for (int i = 0; i < n; i++) {
            link_t *l = events[i].data.ptr;
            if (l) {
                bool open = events[i].events & EPOLLOUT ? flush(l) && (l->out.len || serve_all(l))
                                                        : receive(l);
                if (!open) hang_up(l);
                continue;
            }
            int fd = accept4(door, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd < 0) continue;
            without_delay(fd);
            l = calloc(1, sizeof *l);
            l->fd = fd;
            epoll_ctl(poller, EPOLL_CTL_ADD, fd,
                      &(struct epoll_event){.events = EPOLLIN, .data.ptr = l});
        }
    }
}
