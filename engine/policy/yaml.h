/*
 * YAML as policies use it: scalars, lists and maps with their places in the text. No anchors,
 * aliases, tags or second documents, no key twice, no control characters; depth and count have
 * limits.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { YAML_DEPTH_MAX = 8, YAML_NODES_MAX = 4096 };

enum yaml_kind { YAML_SCALAR = 1, YAML_LIST, YAML_MAP };

/* Of a map's children keys and values take turns. */
struct yaml_node {
	enum yaml_kind kind;
	uint32_t line, column; /* from 1 */
	const char *text;      /* of a scalar, without NUL inside */
	struct yaml_node *first, *last, *next;
};

/* Where a document is wrong, and how. */
struct policy_mistake {
	uint32_t line, column;
	char text[160]; /* the field, then what is wrong and what was expected */
};

struct yaml_text;

/* 0; -EBADMSG: the mistake says what; -ENOMEM. The nodes live until yaml_free(). */
int yaml_read(const char *text, size_t bytes, struct yaml_text **ret,
	      struct policy_mistake *mistake);
const struct yaml_node *yaml_root(const struct yaml_text *yaml);
void yaml_free(struct yaml_text *yaml);

/* Notes what is wrong at a node. -EBADMSG. */
__attribute__((format(printf, 3, 4))) int
yaml_mistake(struct policy_mistake *ret, const struct yaml_node *at, const char *format, ...);
