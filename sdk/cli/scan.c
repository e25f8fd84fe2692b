/*
 * Finds addresses of mirrors in the configuration of package managers. Called by services.c, and by
 * tests. Must hold: what is printed is made of letters, digits, dots and dashes alone, and never of
 * what stands before an @ in an address.
 */
#include "sdk/cli/scan.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const struct scan_file scan_files[] = {
	{ "/etc/apt/sources.list", SCAN_APT, NULL },
	{ "/etc/apt/sources.list.d", SCAN_APT, ".list" },
	{ "/etc/apt/sources.list.d", SCAN_APT, ".sources" },
	{ "/etc/pip.conf", SCAN_PIP, NULL },
	{ "/root/.pip/pip.conf", SCAN_PIP, NULL },
	{ "/root/.config/pip/pip.conf", SCAN_PIP, NULL },
	{ "/etc/npmrc", SCAN_NPM, NULL },
	{ "/usr/etc/npmrc", SCAN_NPM, NULL },
	{ "/usr/local/etc/npmrc", SCAN_NPM, NULL },
	{ "/root/.npmrc", SCAN_NPM, NULL },
	{ "/root/.cargo/config", SCAN_CARGO, NULL },
	{ "/root/.cargo/config.toml", SCAN_CARGO, NULL },
	{ "/usr/local/cargo/config.toml", SCAN_CARGO, NULL },
	{ "/root/.config/go/env", SCAN_GO, NULL },
	{ "/usr/local/go/go.env", SCAN_GO, NULL },
	{ "/etc/gitconfig", SCAN_GIT, NULL },
	{ "/root/.gitconfig", SCAN_GIT, NULL },
};

const size_t scan_file_count = sizeof(scan_files) / sizeof(scan_files[0]);

static const char *const kind_names[] = { "apt", "pip", "npm", "cargo", "go", "git" };
static const char *const protocol_names[] = { "https", "http", "ssh", "git", "svn" };

enum { SERVICE_PLACES = 64 /* as dsecd takes */ };
enum { PROTOCOLS = sizeof(protocol_names) / sizeof(protocol_names[0]) };

/* ---- addresses ---- */

static const char host_letters[] =
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";

/* Which protocol ends right before "://"; PROTOCOLS: none that is known. */
static uint32_t protocol_before(const char *line, const char *colon)
{
	for (uint32_t i = 0; i < PROTOCOLS; i++) {
		const size_t bytes = strlen(protocol_names[i]);

		if ((size_t)(colon - line) >= bytes &&
		    !strncasecmp(colon - bytes, protocol_names[i], bytes) &&
		    ((size_t)(colon - line) == bytes ||
		     !memchr("abcdefghijklmnopqrstuvwxyz", colon[-(long)bytes - 1], 26)))
			return i;
	}
	return PROTOCOLS;
}

static bool is_address(const char *host)
{
	struct in_addr unused;

	return inet_pton(AF_INET, host, &unused) == 1;
}

/* One that a document of services takes. */
static bool host_is_good(const char *host)
{
	const size_t bytes = strlen(host);

	return bytes && bytes < SCAN_HOST_BYTES && host[0] != '.' && host[0] != '-' &&
	       host[bytes - 1] != '.' && host[bytes - 1] != '-' && !strstr(host, "..") &&
	       !strstr(host, ".-") && !strstr(host, "-.") && strchr(host, '.') &&
	       (is_address(host) || strspn(host, "0123456789.") < bytes);
}

static void place_add(struct scan *scan, const struct scan_place *place)
{
	for (uint32_t i = 0; i < scan->count; i++) {
		const struct scan_place *at = &scan->places[i];

		if (at->kind == place->kind && at->protocol == place->protocol &&
		    at->port == place->port && !strcmp(at->host, place->host))
			return;
	}
	if (scan->count == SCAN_PLACES_MAX)
		scan->left_out++;
	else
		scan->places[scan->count++] = *place;
}

/* What stands behind "://": USER@HOST:PORT/... */
static void authority_take(struct scan *scan, struct scan_place *place, const char *at)
{
	const size_t whole = strcspn(at, "/ \t\"'<>,|?#]");
	const char *user = memchr(at, '@', whole);
	const char *end = at + whole;
	size_t bytes;
	char *rest;

	for (const char *next = user; next; next = memchr(next + 1, '@', (size_t)(end - next - 1)))
		at = next + 1;
	bytes = strspn(at, host_letters);
	if (bytes > (size_t)(end - at))
		bytes = (size_t)(end - at);
	if (bytes >= sizeof(place->host) || (at + bytes != end && at[bytes] != ':'))
		return;
	for (size_t i = 0; i < bytes; i++)
		place->host[i] = (char)(at[i] >= 'A' && at[i] <= 'Z' ? at[i] + 32 : at[i]);
	place->host[bytes] = '\0';
	if (at + bytes != end) {
		unsigned long port = strtoul(at + bytes + 1, &rest, 10);

		if (rest != end || port < 1 || port > 65535 || port == 53)
			return;
		place->port = (uint32_t)port;
	}
	if (host_is_good(place->host))
		place_add(scan, place);
}

static bool is_passed_over(enum scan_kind kind, const char *line)
{
	line += strspn(line, " \t");
	/* What git asks for instead is what matters, and not instead of what. */
	return *line == '#' || *line == ';' || (kind == SCAN_GIT && strcasestr(line, "insteadof"));
}

static void line_take(struct scan *scan, enum scan_kind kind, const char *line)
{
	if (is_passed_over(kind, line))
		return;
	for (const char *at = strstr(line, "://"); at; at = strstr(at + 3, "://")) {
		struct scan_place place = { .kind = kind, .protocol = protocol_before(line, at) };

		if (place.protocol < PROTOCOLS)
			authority_take(scan, &place, at + 3);
	}
}

void scan_text(struct scan *scan, enum scan_kind kind, const char *text, size_t bytes)
{
	char line[1024];

	if (bytes > SCAN_FILE_BYTES)
		bytes = SCAN_FILE_BYTES;
	for (size_t at = 0; at < bytes;) {
		const char *end = memchr(text + at, '\n', bytes - at);
		const size_t length = end ? (size_t)(end - text) - at : bytes - at;
		const size_t kept = length < sizeof(line) ? length : sizeof(line) - 1;

		memcpy(line, text + at, kept);
		line[kept] = '\0'; /* a NUL ends it before */
		line_take(scan, kind, line);
		at += length + 1;
	}
}

/* ---- the document ---- */

static int place_compare(const void *a, const void *b)
{
	const struct scan_place *x = a, *y = b;
	int order = (int)x->kind - (int)y->kind;

	if (!order)
		order = (int)x->protocol - (int)y->protocol;
	if (!order)
		order = (int)x->port - (int)y->port;
	if (!order)
		order = is_address(x->host) - is_address(y->host);
	return order ? order : strcmp(x->host, y->host);
}

static bool is_one_service(const struct scan_place *a, const struct scan_place *b)
{
	return a->kind == b->kind && a->protocol == b->protocol && a->port == b->port;
}

/* Names first: those that are one list stand together. */
static void list_print(FILE *file, const struct scan_place *places, uint32_t count, bool addresses)
{
	uint32_t printed = 0;

	for (uint32_t i = 0; i < count; i++)
		if (is_address(places[i].host) == addresses)
			(void)fprintf(file, "%s%s",
				      printed++ ? ", " :
				      addresses ? "  addresses: [" :
						  "  hosts: [",
				      places[i].host);
	if (printed)
		(void)fprintf(file, "]\n");
}

static void service_print(FILE *file, const struct scan_place *places, uint32_t count)
{
	(void)fprintf(file, "- name: %s", kind_names[places->kind]);
	if (places->protocol)
		(void)fprintf(file, "-%s", protocol_names[places->protocol]);
	if (places->port)
		(void)fprintf(file, "-%u", places->port);
	(void)fprintf(file, "\n  protocol: %s\n", protocol_names[places->protocol]);
	list_print(file, places, count, false);
	list_print(file, places, count, true);
	if (places->port)
		(void)fprintf(file, "  ports: [%u]\n", places->port);
}

void scan_print(struct scan *scan, FILE *file)
{
	qsort(scan->places, scan->count, sizeof(scan->places[0]), place_compare);
	for (uint32_t i = 0, next; i < scan->count; i = next) {
		for (next = i + 1;
		     next < scan->count && is_one_service(&scan->places[i], &scan->places[next]);)
			next++;
		if (next - i > SERVICE_PLACES)
			scan->left_out += next - i - SERVICE_PLACES;
		service_print(file, &scan->places[i],
			      next - i > SERVICE_PLACES ? SERVICE_PLACES : next - i);
	}
}
