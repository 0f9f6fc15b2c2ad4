/* Results that look like those of real servers: their sizes and forms, with words of our own. */
#ifndef SHAPES_H
#define SHAPES_H

#include "mini.h"

typedef enum { TEXT, ROWS, PAGE, IMAGE } form_t;

typedef struct {
    const char *tool, *like;
    form_t form;
    size_t size;
} shape_t;

static const shape_t shapes[] = {
    {"file", "A source file as text, as of a server for files", TEXT, 4000},
    {"rows", "Rows as JSON in a text, as of a server for SQL", ROWS, 2000},
    {"issues", "A page of issues as JSON in a text, as of a server for a forge", ROWS, 40000},
    {"page", "A web page as Markdown with many scripts, as of a server that fetches", PAGE, 12000},
    {"picture", "A picture in base64, as of a server for a browser", IMAGE, 200000},
    {"size_1k", "1 KB of text", TEXT, 1000},
    {"size_10k", "10 KB of text", TEXT, 10000},
    {"size_100k", "100 KB of text", TEXT, 100000},
    {"size_1m", "1 MB of text", TEXT, 1000000},
    {"size_10m", "10 MB of text", TEXT, 10000000},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static inline const shape_t *shape_of(span name) {
    for (size_t i = 0; i < SHAPES; i++)
        if (same(name, shapes[i].tool)) return &shapes[i];
    return NULL;
}

/* One more block of content, about as large as the shape says. */
static inline void put_shape(bytes *to, const shape_t *shape) {
    static const char *const pieces[] = {
        [TEXT] = "    if (count > limit) return refuse(\\\"too many\\\");\\n",
        [ROWS] = "{\\\"id\\\": 4711, \\\"title\\\": \\\"A row of many\\\", \\\"open\\\": true, \\\"labels\\\": [\\\"one\\\"]},\\n",
        [PAGE] = "## Größe und Maß — 大きさ\\n\\nA [link](https://example.com/a) in a line of text.\\n",
        [IMAGE] = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhf",
    };
    const char *piece = pieces[shape->form];
    size_t len = strlen(piece), until = to->len + shape->size;
    putf(to, shape->form == IMAGE ? ",{\"type\":\"image\",\"mimeType\":\"image/png\",\"data\":\""
                                  : ",{\"type\":\"text\",\"text\":\"");
    while (to->len + len <= until) put(to, piece, len);
    put(to, "\"}", 2);
}

#endif
