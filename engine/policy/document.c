/*
 * Reads a policy's document by the table of fields. Called by policy.c, on the control thread, and
 * by tests. Must hold: nothing is passed over. What the table does not know is a mistake, told
 * with its place, its field, what was expected and the name that was probably meant.
 */
#include "engine/policy/document.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/guard_policy.h"
#include "engine/policy/egress.h"

enum { PATH_BYTES = 64, CHOICES_BYTES = 96 };

struct reading {
	struct policy_document *document;
	struct policy_mistake *mistake;
};

/* ---- what was expected ---- */

struct names {
	const char *names[64];
	size_t count;
};

static void names_of_words(const struct policy_words *words, struct names *ret)
{
	ret->count = 0;
	for (size_t i = 0; i < words->count; i++)
		ret->names[ret->count++] = words->words[i].name;
}

/* The next parts of all fields below a prefix ("", "files."). */
static void names_below(const char *prefix, char parts[][PATH_BYTES], struct names *ret)
{
	size_t skip = strlen(prefix);

	ret->count = 0;
	for (uint32_t id = 0; id < POLICY_FIELDS; id++) {
		const char *path = policy_field(id)->path;
		size_t bytes;

		if (strncmp(path, prefix, skip) != 0)
			continue;
		bytes = strcspn(path + skip, ".");
		if (ret->count && strlen(parts[ret->count - 1]) == bytes &&
		    !memcmp(parts[ret->count - 1], path + skip, bytes))
			continue;
		memcpy(parts[ret->count], path + skip, bytes);
		parts[ret->count][bytes] = 0;
		ret->names[ret->count] = parts[ret->count];
		ret->count++;
	}
}

/* "x: WHAT; did you mean y?", or what there is. */
static int unknown(const struct reading *reading, const struct yaml_node *at, const char *path,
		   const char *what, const struct names *known)
{
	const char *nearest = at->text ? policy_nearest(at->text, known->names, known->count) :
					 NULL;
	char all[CHOICES_BYTES] = "";
	size_t used = 0;

	if (nearest)
		return yaml_mistake(reading->mistake, at, "%.48s: %s; did you mean %s?", path, what,
				    nearest);
	for (size_t i = 0; i < known->count && used + 24 < sizeof all; i++)
		used += (size_t)snprintf(all + used, sizeof all - used, "%s%.20s", i ? ", " : "",
					 known->names[i]);
	return yaml_mistake(reading->mistake, at, "%.48s: %s; one of %s", path, what, all);
}

/* ---- entries ---- */

static int entry_add(const struct reading *reading, enum policy_field_id field,
		     const struct yaml_node *at, struct policy_entry **ret)
{
	struct policy_document *document = reading->document;

	*ret = &document->entries[document->count++]; /* as many as there may be nodes */
	**ret = (struct policy_entry){
		.field = field, .text = at->text, .line = at->line, .column = at->column
	};
	return 0;
}

static int text_check(const struct reading *reading, const struct yaml_node *at, const char *path,
		      const char *expected)
{
	if (at->kind != YAML_SCALAR)
		return yaml_mistake(reading->mistake, at, "%s: expected %s", path, expected);
	if (strlen(at->text) > GUARD_RULE_TEXT_MAX)
		return yaml_mistake(reading->mistake, at, "%s: more than %d bytes", path,
				    GUARD_RULE_TEXT_MAX);
	return 0;
}

/* Absolute, and the only way to write it: no empty part, no . and .., no / at the end. */
static bool path_is_good(const char *path)
{
	if (path[0] != '/' || !path[1])
		return false;
	for (const char *part = path; *part;) {
		size_t bytes = strcspn(part + 1, "/");

		if (!bytes || (part[1] == '.' && (bytes == 1 || (bytes == 2 && part[2] == '.'))))
			return false;
		part += 1 + bytes;
	}
	return true;
}

static int path_read(const struct reading *reading, enum policy_field_id id,
		     const struct yaml_node *at)
{
	const char *field = policy_field(id)->path;
	struct policy_entry *entry;
	const bool socket = policy_field(id)->kind == FIELD_IS_SOCKETS;
	int r = text_check(reading, at, field, socket ? "a path or @name" : "an absolute path");

	if (r < 0)
		return r;
	if (socket && at->text[0] == '@' && at->text[1])
		return strlen(at->text) <= 107 ? entry_add(reading, id, at, &entry) :
						 yaml_mistake(reading->mistake, at,
							      "%s: a name has 107 bytes", field);
	if (!path_is_good(at->text))
		return yaml_mistake(reading->mistake, at,
				    "%s: expected %s without . .. // and / at its end", field,
				    socket ? "/path or @name" : "/path");
	return entry_add(reading, id, at, &entry);
}

/* "service: NAME": which one it is is known when it is compiled. */
static int service_read(const struct reading *reading, enum policy_field_id id,
			const struct yaml_node *at)
{
	const char *field = policy_field(id)->path;
	const struct yaml_node *key = at->first, *name = key ? key->next : NULL;
	struct policy_entry *entry;

	if (id != FIELD_EGRESS_ALLOW)
		return yaml_mistake(reading->mistake, at,
				    "%s: a service cannot be denied: one that nothing allows is "
				    "refused",
				    field);
	if (!key || strcmp(key->text, "service") != 0 || name->next || name->kind != YAML_SCALAR ||
	    !policy_name_is_good(name->text))
		return yaml_mistake(reading->mistake, at, "%s: expected service: NAME", field);
	(void)entry_add(reading, id, name, &entry); /* there is room */
	entry->key = "service";
	return 0;
}

static int destination_read(const struct reading *reading, enum policy_field_id id,
			    const struct yaml_node *at)
{
	const char *field = policy_field(id)->path, *wrong;
	struct guard_destination destination;
	struct policy_entry *entry;
	int r;

	if (at->kind == YAML_MAP)
		return service_read(reading, id, at);
	r = text_check(reading, at, field, "an address, then what of it; or service: NAME");
	if (r < 0)
		return r;
	wrong = egress_read(at->text, id == FIELD_EGRESS_DENY, &destination);
	return wrong ? yaml_mistake(reading->mistake, at, "%s: %s", field, wrong) :
		       entry_add(reading, id, at, &entry);
}

/* A number as the kernel has it in cmd & 0xffff. */
static bool ioctl_number(const char *text, uint32_t *ret)
{
	char *end;
	unsigned long value;

	if (strncmp(text, "0x", 2) != 0 || strlen(text) > 6)
		return false;
	value = strtoul(text + 2, &end, 16);
	*ret = (uint32_t)value;
	return end != text + 2 && !*end &&
	       strspn(text + 2, "0123456789abcdefABCDEF") == strlen(text + 2);
}

static int word_read(const struct reading *reading, enum policy_field_id id,
		     const struct yaml_node *at)
{
	const struct policy_field *field = policy_field(id);
	const struct policy_word *word;
	struct policy_entry *entry;
	struct names known;
	uint32_t number = 0;
	bool is_number = false;
	int r = text_check(reading, at, field->path, "a word");

	if (r < 0)
		return r;
	word = policy_word(&field->words, at->text);
	if (!word && field->kind == FIELD_IS_IOCTLS)
		is_number = ioctl_number(at->text, &number);
	names_of_words(&field->words, &known);
	if (!word && field->kind == FIELD_IS_IOCTLS && !is_number && !strncmp(at->text, "0x", 2))
		return yaml_mistake(reading->mistake, at,
				    "%s: a number is 0x and 1 to 4 digits: type << 8 | nr",
				    field->path);
	if (is_number && !number)
		return yaml_mistake(reading->mistake, at, "%s: 0x0 is no ioctl", field->path);
	if (!word && !is_number)
		return unknown(reading, at, field->path, "unknown value", &known);
	r = entry_add(reading, id, at, &entry);
	entry->is_number = is_number;
	entry->value = is_number ? number : word->value;
	return r;
}

/* Digits alone, in the field's range. */
static int number_read(const struct reading *reading, enum policy_field_id id,
		       const struct yaml_node *at)
{
	const struct policy_field *field = policy_field(id);
	const bool is_count = field->kind == FIELD_IS_COUNT;
	const unsigned long min = is_count, max = is_count ? FIELD_COUNT_MAX : FIELD_SECONDS_MAX;
	struct policy_entry *entry;
	unsigned long value = 0;
	int r = text_check(reading, at, field->path, "a number");

	if (r < 0)
		return r;
	if (*at->text && strspn(at->text, "0123456789") == strlen(at->text) &&
	    strlen(at->text) <= 7)
		value = strtoul(at->text, NULL, 10);
	else
		value = max + 1;
	if (value < min || value > max)
		return yaml_mistake(reading->mistake, at, "%s: expected %s from %lu to %lu",
				    field->path, is_count ? "a number" : "seconds", min, max);
	r = entry_add(reading, id, at, &entry);
	entry->value = (uint32_t)value;
	return r;
}

/* Bytes, in KiB, MiB, GiB or TiB if it says so. */
static bool bytes_parse(const char *text, uint64_t *ret)
{
	static const char *const units[] = { "", "KiB", "MiB", "GiB", "TiB" };
	const size_t digits = strspn(text, "0123456789");

	if (!digits || digits > 16)
		return false;
	for (unsigned i = 0; i < sizeof units / sizeof units[0]; i++) {
		if (strcmp(text + digits, units[i]) != 0)
			continue;
		*ret = strtoull(text, NULL, 10);
		if (*ret > FIELD_BYTES_MAX >> 10 * i)
			return false;
		*ret <<= 10 * i;
		return *ret != 0;
	}
	return false;
}

static int bytes_read(const struct reading *reading, enum policy_field_id id,
		      const struct yaml_node *at)
{
	const char *field = policy_field(id)->path;
	struct policy_entry *entry;
	uint64_t value = 0;
	int r = text_check(reading, at, field, "a number of bytes");

	if (r < 0)
		return r;
	if (!bytes_parse(at->text, &value))
		return yaml_mistake(reading->mistake, at,
				    "%s: expected bytes from 1 to 1024TiB, as 4096 or 64MiB",
				    field);
	r = entry_add(reading, id, at, &entry);
	entry->value = value;
	return r;
}

static int name_read(const struct reading *reading, enum policy_field_id id,
		     const struct yaml_node *at)
{
	struct policy_document *document = reading->document;
	const char *path = policy_field(id)->path;

	if (at->kind != YAML_SCALAR || !policy_name_is_good(at->text))
		return yaml_mistake(reading->mistake, at,
				    "%s: expected 1 to 63 of a-z 0-9 and - inside", path);
	if (id == FIELD_NAME) {
		document->name = at->text;
		return 0;
	}
	document->extends = at->text;
	document->extends_line = at->line;
	document->extends_column = at->column;
	return 0;
}

static int phases_read(const struct reading *reading, const struct yaml_node *map)
{
	struct policy_entry *entry;

	if (map->kind != YAML_MAP)
		return yaml_mistake(reading->mistake, map,
				    "phases: expected a map of phases and their policies");
	for (const struct yaml_node *key = map->first; key; key = key->next->next) {
		const struct yaml_node *value = key->next;

		if (!policy_name_is_good(key->text))
			return yaml_mistake(reading->mistake, key,
					    "phases: a phase is 1 to 63 of a-z 0-9 and - inside");
		if (value->kind != YAML_SCALAR || !policy_name_is_good(value->text))
			return yaml_mistake(reading->mistake, value,
					    "phases.%s: expected the name of a policy", key->text);
		(void)entry_add(reading, FIELD_PHASES, value, &entry); /* there is room */
		entry->key = key->text;
	}
	return 0;
}

/* ---- fields ---- */

static int item_read(const struct reading *reading, enum policy_field_id id,
		     const struct yaml_node *item)
{
	switch (policy_field(id)->kind) {
	case FIELD_IS_PATHS:
	case FIELD_IS_SOCKETS:
		return path_read(reading, id, item);
	case FIELD_IS_DESTINATIONS:
		return destination_read(reading, id, item);
	default:
		return word_read(reading, id, item);
	}
}

static int value_read(const struct reading *reading, enum policy_field_id id,
		      const struct yaml_node *at)
{
	const struct policy_field *field = policy_field(id);
	int r = 0;

	if (field->kind == FIELD_IS_POLICY)
		return name_read(reading, id, at);
	if (field->kind == FIELD_IS_PHASES)
		return phases_read(reading, at);
	if (field->kind == FIELD_IS_WORD)
		return word_read(reading, id, at);
	if (field->kind == FIELD_IS_COUNT || field->kind == FIELD_IS_SECONDS)
		return number_read(reading, id, at);
	if (field->kind == FIELD_IS_BYTES)
		return bytes_read(reading, id, at);
	if (at->kind != YAML_LIST)
		return yaml_mistake(reading->mistake, at, "%s: expected a list", field->path);
	if ((id == FIELD_SOCKETS_FAMILIES || id == FIELD_IOCTLS_ALLOW) && !at->first)
		return yaml_mistake(reading->mistake, at, /* it would refuse none */
				    "%s: expected what may be: all others are refused",
				    field->path);
	for (const struct yaml_node *item = at->first; item && r == 0; item = item->next)
		r = item_read(reading, id, item);
	return r;
}

/* The fields of a map, whose path so far is `prefix`: "", "files.". */
static int map_read(const struct reading *reading, const struct yaml_node *map, const char *prefix)
{
	char path[PATH_BYTES], parts[POLICY_FIELDS][PATH_BYTES];
	struct names known;
	int r = 0;

	if (map->kind != YAML_MAP)
		return yaml_mistake(reading->mistake, map, "%.*s: expected a map",
				    *prefix ? (int)strlen(prefix) - 1 : 8,
				    *prefix ? prefix : "document");
	for (const struct yaml_node *key = map->first; key && r == 0; key = key->next->next) {
		uint32_t id = 0, below = 0;
		int bytes = snprintf(path, sizeof path, "%s%.40s", prefix, key->text);

		for (id = 0; id < POLICY_FIELDS && strcmp(policy_field(id)->path, path) != 0; id++)
			if (!strncmp(policy_field(id)->path, path, (size_t)bytes) &&
			    policy_field(id)->path[bytes] == '.')
				below = 1;
		if (id < POLICY_FIELDS) {
			r = value_read(reading, id, key->next);
		} else if (below && *key->text) {
			(void)strcat(path, "."); /* of a known field: there is room */
			r = map_read(reading, key->next, path);
		} else {
			names_below(prefix, parts, &known);
			r = unknown(reading, key, path, "unknown field", &known);
		}
	}
	return r;
}

int policy_document_read(const char *text, size_t bytes, struct policy_document **ret,
			 struct policy_mistake *mistake)
{
	const struct yaml_node start = { .line = 1, .column = 1 };
	struct policy_document *document;
	struct reading reading = { .mistake = mistake };
	int r;

	if (bytes > POLICY_DOCUMENT_BYTES_MAX)
		return yaml_mistake(mistake, &start, "document: more than 65,536 bytes");
	document = calloc(1, sizeof *document + YAML_NODES_MAX * sizeof document->entries[0]);
	if (!document)
		return -ENOMEM;
	reading.document = document;
	r = yaml_read(text, bytes, &document->yaml, mistake);
	if (r == 0)
		r = map_read(&reading, yaml_root(document->yaml), "");
	if (r == 0 && !document->name)
		r = yaml_mistake(mistake, &start, "name: expected, the policy has none");
	if (r < 0) {
		policy_document_free(document);
		return r;
	}
	*ret = document;
	return 0;
}

void policy_document_free(struct policy_document *document)
{
	if (document)
		yaml_free(document->yaml);
	free(document);
}
