/*
 * Words of a pack. Called by verb_pack.c. Must hold: a word that is not understood ends it, by
 * name; what a canary is stands in no message.
 */
#include "backends/store/pack_wish.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/canary.h"
#include "backends/store/residue.h"
#include "engine/base/cleanup.h"

/* What follows the kind; NULL: it is of another. */
static const char *word_of(const char *text, const char *kind)
{
	size_t bytes = strlen(kind);

	return strncmp(text, kind, bytes) == 0 ? text + bytes : NULL;
}

static int number_read(const char *text, uint32_t *ret)
{
	unsigned long long number;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || end == text || *end || number > UINT32_MAX)
		return -EINVAL;
	*ret = (uint32_t)number;
	return 0;
}

static int base_read(struct pack_wish *wish, const char *hex)
{
	if (wish->base_count == PACK_BASES_MAX)
		return -E2BIG;
	return digest_parse(hex, wish->bases[wish->base_count++]) ? 0 : -EINVAL;
}

static int canary_read(struct pack_wish *wish, const char *text)
{
	int r = wish->canaries ? 0 : canary_list_new(&wish->canaries);

	wish->canary_count++;
	return r < 0 ? r : canary_add(wish->canaries, text, strlen(text));
}

static int word_take(struct pack_wish *wish, const char *text, const char **rules,
		     const char **ret_why)
{
	const char *value;

	*ret_why = "a word of no kind that a pack has";
	if ((value = word_of(text, "base:")))
		return base_read(wish, value);
	if ((value = word_of(text, "ids:")))
		return number_read(value, &wish->id_base);
	if ((value = word_of(text, "image:"))) {
		wish->image = value;
		return 0;
	}
	if ((value = word_of(text, "sandbox:"))) {
		wish->sandbox = value;
		return 0;
	}
	if ((value = word_of(text, "wipe:"))) {
		rules[wish->wipe_count++] = value;
		return 0;
	}
	*ret_why = "a canary has 8 to 512 bytes; at most 1024, 64 KiB in all";
	value = word_of(text, "scan:");
	return value ? canary_read(wish, value) : -EINVAL;
}

static int words_take(struct pack_wish *wish, char *const *texts, uint32_t count,
		      const char **ret_word, const char **ret_why)
{
	auto_free const char **rules = calloc(count + 1, sizeof *rules);
	size_t wrong = 0;
	int r = rules ? 0 : -ENOMEM;

	for (uint32_t i = 0; r >= 0 && i < count; i++) {
		*ret_word = word_of(texts[i], "scan:") ? "scan" : texts[i];
		r = word_take(wish, texts[i], rules, ret_why);
	}
	if (r >= 0 && !wish->wipe_count)
		rules[wish->wipe_count++] = "all";
	if (r < 0)
		return r;
	*ret_why = "no rule of residue, and no path that begins with /";
	r = residue_new(rules, wish->wipe_count, &wish->residue, &wrong);
	if (r >= 0)
		r = residue_new(rules, wish->wipe_count, &wish->below, &wrong);
	if (r < 0)
		*ret_word = rules[wrong];
	return r;
}

int pack_wish_read(char *const *texts, uint32_t count, struct pack_wish *ret, const char **ret_word,
		   const char **ret_why)
{
	int r;

	*ret = (struct pack_wish){ .image = "", .sandbox = "" };
	*ret_word = "";
	*ret_why = "no memory";
	r = words_take(ret, texts, count, ret_word, ret_why);
	if (r >= 0 && ret->canaries)
		r = canary_ready(ret->canaries);
	if (r < 0)
		pack_wish_done(ret);
	return r;
}

void pack_wish_done(struct pack_wish *wish)
{
	residue_free(wish->residue);
	residue_free(wish->below);
	canary_list_free(wish->canaries);
	wish->residue = wish->below = NULL;
	wish->canaries = NULL;
}
