/*
 * Reads, folds and finds host names of network.egress. Called by egress.c, compile.c and
 * narrower.c, by the resolver for each name that is asked for, and by tests. Must hold: a name has
 * one spelling (lower case, no dot at its end); after folding the closest entry alone says all.
 */
#include "engine/policy/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/policy/egress.h"

enum { NAME_BYTES_MAX = 253, NAME_LABEL_MAX = 63 };

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyz"
#define NAME_DIGITS  "0123456789"

/* ---- reading ---- */

bool name_is_meant(const char *word)
{
	return !strpbrk(word, ":/") && word[strspn(word, NAME_DIGITS ".")];
}

static const char *label_check(const char *label, size_t bytes)
{
	if (!bytes)
		return "an empty part in a name: no dot at its end, no two in a row";
	if (bytes > NAME_LABEL_MAX)
		return "a part of a name has at most 63 bytes";
	if (memchr(label, '*', bytes))
		return "no * in names: .mirror.example is it and all names below it";
	if (strspn(label, NAME_LETTERS NAME_DIGITS "-_") < bytes)
		return "a name is written with a-z 0-9 - _ and dots, others as xn--";
	if (label[0] == '-' || label[bytes - 1] == '-')
		return "no - at the ends of a name's parts";
	return NULL;
}

const char *name_check(const char *word)
{
	const char *label = word + (*word == '.'), *wrong = NULL;

	if (strlen(label) > NAME_BYTES_MAX)
		return "a name has at most 253 bytes";
	while (!wrong) {
		const size_t bytes = strcspn(label, ".");

		wrong = label_check(label, bytes);
		if (!label[bytes]) {
			if (!wrong && strspn(label, NAME_DIGITS) == bytes)
				wrong = "the last part of a name is no number";
			break;
		}
		label += bytes + 1;
	}
	return wrong;
}

/* ---- finding ---- */

static bool is_suffix(const char *entry)
{
	return entry[0] == '.';
}

static const char *bare(const char *entry)
{
	return entry + is_suffix(entry);
}

/* Whether an entry is said of a name, or of all that another entry is said of. */
static bool entry_holds(const char *wide, const char *narrow)
{
	const char *w = bare(wide), *n = bare(narrow);
	const size_t w_bytes = strlen(w), n_bytes = strlen(n);

	if (!is_suffix(wide))
		return !is_suffix(narrow) && !strcmp(w, n);
	return n_bytes >= w_bytes && !strcmp(n + n_bytes - w_bytes, w) &&
	       (n_bytes == w_bytes || n[n_bytes - w_bytes - 1] == '.');
}

/* The last of them that holds it: the closest, as they are sorted. */
static const struct guard_name *closest_find(const struct guard_name *all, uint32_t count,
					     const char *of)
{
	for (uint32_t i = count; i > 0; i--)
		if (entry_holds(all[i - 1].text, of))
			return &all[i - 1];
	return NULL;
}

const struct guard_name *names_find(const struct guard_policy *policy, const char *name)
{
	return closest_find(policy->names, policy->name_count, name);
}

/* ---- folding ---- */

/* What holds another one comes before it; of one text the first rule. */
static int name_compare(const void *a, const void *b)
{
	const struct guard_name *x = a, *y = b;
	const size_t x_bytes = strlen(bare(x->text)), y_bytes = strlen(bare(y->text));
	int order = (x_bytes > y_bytes) - (x_bytes < y_bytes);

	if (!order)
		order = is_suffix(y->text) - is_suffix(x->text);
	if (!order)
		order = strcmp(x->text, y->text);
	if (!order)
		order = (x->to.rule > y->to.rule) - (x->to.rule < y->to.rule);
	return order;
}

int names_fold(struct guard_name *entries, uint32_t count, uint32_t *ret_rule)
{
	uint32_t kept = 0;
	int r = 0;

	qsort(entries, count, sizeof entries[0], name_compare);
	for (uint32_t i = 0; i < count && r == 0; i++) {
		const struct guard_name entry = entries[i];
		const struct guard_name *parent = closest_find(entries, kept, entry.text);

		if (parent && !strcmp(parent->text, entry.text)) {
			r = egress_ports_join(&entries[kept - 1].to, &entry.to);
		} else {
			entries[kept++] = entry;
			if (parent)
				r = egress_ports_join(&entries[kept - 1].to, &parent->to);
		}
		if (r < 0)
			*ret_rule = entry.to.rule;
	}
	return r < 0 ? r : (int)kept;
}

/* ---- comparing ---- */

/* A name leads to any address: so what `wider` denies, `policy` has to deny. */
static bool denies_are_kept(const struct guard_policy *policy, const struct guard_policy *wider)
{
	for (uint32_t i = 0; policy->name_count && i < wider->destination_count; i++) {
		const struct guard_destination *denied = &wider->destinations[i];
		const struct guard_destination *here = egress_find(policy, denied);

		if (!denied->port_count && (!here || here->port_count))
			return false;
	}
	return true;
}

bool names_are_within(const struct guard_policy *policy, const struct guard_policy *wider)
{
	for (uint32_t i = 0; i < policy->name_count; i++) {
		const struct guard_name *name = &policy->names[i];
		const struct guard_name *there = names_find(wider, name->text);

		if (!there || !egress_ports_are_within(&name->to, &there->to))
			return false;
	}
	return denies_are_kept(policy, wider);
}
