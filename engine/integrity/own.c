/*
 * Compares what was fetched with what is a task's own. Called by integrity.c for each report and
 * each name that was asked for. Must hold: takes any bytes, a bounded time and no memory.
 */
#include "engine/integrity/own.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Each byte gives one at most, and there is a slash at both ends. */
enum { FOLDED_BYTES = OWN_FETCH_BYTES_MAX + 3 };

struct folded {
	char text[FOLDED_BYTES]; /* "/one/two/" */
	size_t bytes;
};

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The next byte of a path, %41 and A alike. */
static uint8_t byte_take(struct own_text *from)
{
	const char *at = from->at;
	int high = -1, low = -1;

	if (*at == '%' && from->bytes > 2) {
		high = digit_of(at[1]);
		low = digit_of(at[2]);
	}
	if (high < 0 || low < 0)
		high = low = -1;
	from->at += high < 0 ? 1 : 3;
	from->bytes -= high < 0 ? 1 : 3;
	return high < 0 ? (uint8_t)*at : (uint8_t)(high << 4 | low);
}

/* A name ends: none, "." and what ".git" adds are not there. */
static void name_end(struct folded *f)
{
	if (f->bytes > 5 && !memcmp(f->text + f->bytes - 4, ".git", 4) &&
	    f->text[f->bytes - 5] != '/')
		f->bytes -= 4;
	if (f->bytes > 1 && f->text[f->bytes - 1] == '.' && f->text[f->bytes - 2] == '/')
		f->bytes--;
	if (f->text[f->bytes - 1] != '/')
		f->text[f->bytes++] = '/';
}

/* Behind "https://". */
static struct own_text scheme_skip(struct own_text text)
{
	for (size_t i = 0; i + 2 < text.bytes && i < 12; i++) {
		if (!memcmp(text.at + i, "://", 3))
			return (struct own_text){ text.at + i + 3, text.bytes - i - 3 };
	}
	return text;
}

/*
 * As registries write one thing differently: case, Go's "!a" for A, a version behind "@", "%2f",
 * a query. A name that begins with "@" keeps it, which is npm's.
 */
static void fold(struct own_text from, struct folded *ret)
{
	if (from.bytes > OWN_FETCH_BYTES_MAX)
		from.bytes = OWN_FETCH_BYTES_MAX;
	from = scheme_skip(from);
	ret->text[0] = '/';
	ret->bytes = 1;
	while (from.bytes) {
		const uint8_t c = byte_take(&from);

		if (c == '?' || c == '#')
			break;
		if (c == '/' || (c == '@' && ret->text[ret->bytes - 1] != '/'))
			name_end(ret);
		else if (c != '!')
			ret->text[ret->bytes++] = (char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
	}
	name_end(ret);
}

/* The next of `own`, which spaces and commas part; 0 bytes: there is none. */
static struct own_text own_next(struct own_text *own)
{
	struct own_text next;

	while (own->bytes && (*own->at == ' ' || *own->at == ',')) {
		own->at++;
		own->bytes--;
	}
	next = (struct own_text){ own->at, 0 };
	while (own->bytes && *own->at != ' ' && *own->at != ',') {
		own->at++;
		own->bytes--;
		next.bytes++;
	}
	return next;
}

bool own_has_path(struct own_text own, struct own_text path)
{
	struct folded fetched, wanted;
	struct own_text next;

	fold(path, &fetched);
	while ((next = own_next(&own)).bytes) {
		fold(next, &wanted);
		if (wanted.bytes > 2 &&
		    memmem(fetched.text, fetched.bytes, wanted.text, wanted.bytes))
			return true;
	}
	return false;
}

bool own_has_host(struct own_text own, const char *host)
{
	struct folded asked, wanted;
	struct own_text next;

	fold((struct own_text){ host, strlen(host) }, &asked);
	while ((next = own_next(&own)).bytes) {
		fold(next, &wanted);
		if (!memchr(wanted.text, '.', wanted.bytes) || wanted.bytes > asked.bytes ||
		    memchr(wanted.text + 1, '/', wanted.bytes - 2))
			continue;
		wanted.text[0] = asked.text[asked.bytes - wanted.bytes] == '.' ? '.' : '/';
		if (!memcmp(asked.text + asked.bytes - wanted.bytes, wanted.text, wanted.bytes))
			return true;
	}
	return false;
}
