/*
 * Reads a document with libyaml into nodes. Called by document.c, on the control thread and in
 * tests: the text is a client's. Must hold: nothing is taken over its limit, and every refusal has
 * a place.
 */
#include "engine/policy/yaml.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

struct yaml_text {
	struct yaml_node *root;
	uint32_t count, depth;
	struct yaml_node *open[YAML_DEPTH_MAX];
	char *strings; /* of all scalars */
	size_t used, room;
	struct yaml_node nodes[YAML_NODES_MAX];
};

int yaml_mistake(struct policy_mistake *ret, const struct yaml_node *at, const char *format, ...)
{
	va_list args;

	ret->line = at->line;
	ret->column = at->column;
	va_start(args, format);
	(void)vsnprintf(ret->text, sizeof ret->text, format, args); /* cut is fine: for people */
	va_end(args);
	return -EBADMSG;
}

static int mistake_at(struct policy_mistake *ret, const yaml_mark_t *mark, const char *what)
{
	const struct yaml_node at = { .line = (uint32_t)mark->line + 1,
				      .column = (uint32_t)mark->column + 1 };

	return yaml_mistake(ret, &at, "%s", what);
}

/* ---- nodes ---- */

static bool is_key(const struct yaml_node *parent)
{
	uint32_t count = 0;

	for (const struct yaml_node *at = parent->first; at; at = at->next)
		count++;
	return count % 2 == 0;
}

static bool has_key(const struct yaml_node *map, const char *key)
{
	for (const struct yaml_node *at = map->first; at; at = at->next->next)
		if (!strcmp(at->text, key))
			return true;
	return false;
}

static int node_add(struct yaml_text *yaml, const yaml_mark_t *mark, enum yaml_kind kind,
		    struct policy_mistake *mistake)
{
	struct yaml_node *parent = yaml->depth ? yaml->open[yaml->depth - 1] : NULL;
	struct yaml_node *node;

	if (yaml->count == YAML_NODES_MAX)
		return mistake_at(mistake, mark, "more than 4096 values");
	if (kind != YAML_SCALAR && yaml->depth == YAML_DEPTH_MAX)
		return mistake_at(mistake, mark, "nested more than 8 deep");
	if (kind != YAML_SCALAR && parent && parent->kind == YAML_MAP && is_key(parent))
		return mistake_at(mistake, mark, "a key is a word");
	node = &yaml->nodes[yaml->count++];
	*node = (struct yaml_node){ .kind = kind,
				    .line = (uint32_t)mark->line + 1,
				    .column = (uint32_t)mark->column + 1 };
	if (!parent)
		yaml->root = node;
	else if (parent->last)
		parent->last->next = node;
	else
		parent->first = node;
	if (parent)
		parent->last = node;
	if (kind != YAML_SCALAR)
		yaml->open[yaml->depth++] = node;
	return 0;
}

static bool has_control_character(const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return true;
	return false;
}

static int scalar_add(struct yaml_text *yaml, const yaml_event_t *event,
		      struct policy_mistake *mistake)
{
	const char *value = (const char *)event->data.scalar.value;
	size_t bytes = event->data.scalar.length;
	const struct yaml_node *parent = yaml->depth ? yaml->open[yaml->depth - 1] : NULL;
	bool key = parent && parent->kind == YAML_MAP && is_key(parent);
	char *text = yaml->strings + yaml->used;
	int r;

	if (has_control_character(value, bytes))
		return mistake_at(mistake, &event->start_mark, "a control character in a value");
	if (bytes + 1 > yaml->room - yaml->used)
		return mistake_at(mistake, &event->start_mark, "more text than its bytes hold");
	memcpy(text, value, bytes);
	text[bytes] = 0;
	if (key && has_key(parent, text)) {
		const struct yaml_node at = { .line = (uint32_t)event->start_mark.line + 1,
					      .column = (uint32_t)event->start_mark.column + 1 };

		return yaml_mistake(mistake, &at, "%.60s: twice in one map", text);
	}
	r = node_add(yaml, &event->start_mark, YAML_SCALAR, mistake);
	if (r < 0)
		return r;
	yaml->used += bytes + 1;
	yaml->nodes[yaml->count - 1].text = text;
	return 0;
}

/* ---- libyaml's events ---- */

static int plain_check(const yaml_event_t *event, const unsigned char *anchor,
		       const unsigned char *tag, struct policy_mistake *mistake)
{
	if (anchor)
		return mistake_at(mistake, &event->start_mark, "anchors are not taken");
	return tag ? mistake_at(mistake, &event->start_mark, "tags are not taken") : 0;
}

/* 1: the document ended. */
static int event_take(struct yaml_text *yaml, const yaml_event_t *event,
		      struct policy_mistake *mistake)
{
	int r;

	switch (event->type) {
	case YAML_ALIAS_EVENT:
		return mistake_at(mistake, &event->start_mark, "aliases are not taken");
	case YAML_SCALAR_EVENT:
		r = plain_check(event, event->data.scalar.anchor, event->data.scalar.tag, mistake);
		return r < 0 ? r : scalar_add(yaml, event, mistake);
	case YAML_SEQUENCE_START_EVENT:
		r = plain_check(event, event->data.sequence_start.anchor,
				event->data.sequence_start.tag, mistake);
		return r < 0 ? r : node_add(yaml, &event->start_mark, YAML_LIST, mistake);
	case YAML_MAPPING_START_EVENT:
		r = plain_check(event, event->data.mapping_start.anchor,
				event->data.mapping_start.tag, mistake);
		return r < 0 ? r : node_add(yaml, &event->start_mark, YAML_MAP, mistake);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		yaml->depth--;
		return 0;
	case YAML_DOCUMENT_START_EVENT:
		if (yaml->root)
			return mistake_at(mistake, &event->start_mark, "a second document");
		return 0;
	default:
		return event->type == YAML_STREAM_END_EVENT;
	}
}

/* The reader knows bytes only. */
static yaml_mark_t mark_of_byte(const yaml_parser_t *parser)
{
	const unsigned char *at = parser->input.string.start, *end = parser->input.string.end;
	yaml_mark_t mark = { .index = parser->problem_offset };

	if (mark.index < (size_t)(end - at))
		end = at + mark.index;
	for (; at < end; at++) {
		mark.line += *at == '\n';
		mark.column = *at == '\n' ? 0 : mark.column + ((*at & 0xc0) != 0x80);
	}
	return mark;
}

static int parser_mistake(const yaml_parser_t *parser, struct policy_mistake *mistake)
{
	const char *problem = parser->problem ? parser->problem : "no YAML";
	const yaml_mark_t at = parser->error == YAML_READER_ERROR ? mark_of_byte(parser) :
								    parser->problem_mark;

	if (parser->error == YAML_MEMORY_ERROR)
		return -ENOMEM;
	if (parser->error != YAML_READER_ERROR)
		return mistake_at(mistake, &at, problem);
	return mistake_at(mistake, &at, "not UTF-8, or a character YAML does not take");
}

static int events_read(yaml_parser_t *parser, struct yaml_text *yaml,
		       struct policy_mistake *mistake)
{
	yaml_event_t event;
	int r = 0;

	while (r == 0) {
		if (!yaml_parser_parse(parser, &event))
			return parser_mistake(parser, mistake);
		r = event_take(yaml, &event, mistake);
		yaml_event_delete(&event);
	}
	if (r > 0 && !yaml->root)
		return mistake_at(mistake, &parser->mark, "an empty document");
	return r < 0 ? r : 0;
}

int yaml_read(const char *text, size_t bytes, struct yaml_text **ret,
	      struct policy_mistake *mistake)
{
	struct yaml_text *yaml = calloc(1, sizeof *yaml);
	yaml_parser_t parser;
	int r;

	if (!yaml)
		return -ENOMEM;
	/* An escape of two characters may stand for three bytes, and each scalar gets a NUL. */
	yaml->room = 2 * bytes + YAML_NODES_MAX;
	yaml->strings = malloc(yaml->room);
	if (!yaml->strings || !yaml_parser_initialize(&parser)) {
		yaml_free(yaml);
		return -ENOMEM;
	}
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
	r = events_read(&parser, yaml, mistake);
	yaml_parser_delete(&parser);
	if (r < 0) {
		yaml_free(yaml);
		return r;
	}
	*ret = yaml;
	return 0;
}

const struct yaml_node *yaml_root(const struct yaml_text *yaml)
{
	return yaml->root;
}

void yaml_free(struct yaml_text *yaml)
{
	if (yaml)
		free(yaml->strings);
	free(yaml);
}
