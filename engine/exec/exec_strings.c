/*
 * Packing argv, env and working directory for the backend. Called by exec.c. Refuses what execve(2)
 * cannot carry; the lists were written by a client and are checked before anything is copied.
 */
#include "engine/exec/exec_strings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/image.h"
#include "engine/config.h"
#include "engine/image/image.h"

#define PATH_DEFAULT "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum { STRINGS_MAX = 4096, DEFAULTS_BYTES = 128 };

struct packing {
	char *at;
	uint32_t used;
	uint32_t count;
};

static struct status strings_invalid(const char *field, int error)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = -error,
				.table = "exec",
				.step = field };
}

static struct status strings_too_many(const char *field, const char *detail)
{
	struct status s = strings_invalid(field, -E2BIG);

	s.detail = detail;
	return s;
}

/* As it is told. */
_Static_assert(EXEC_ARGUMENT_BYTES_MAX == 128 << 10, "128 KiB");
_Static_assert(STRINGS_MAX == 4096, "4,096 strings");
_Static_assert(EXEC_ENV_COUNT_MAX == 512, "512 variables");

static void pack(struct packing *p, const char *bytes, uint32_t count)
{
	if (count)
		memcpy(p->at + p->used, bytes, count);
	p->used += count;
	p->at[p->used++] = 0;
	p->count++;
}

/* Each item's four bytes of length leave room for its NUL. */
static int pack_items(struct packing *p, const struct wire *w, const struct dsec_wire_items *items)
{
	struct dsec_wire_ref item;
	uint32_t cursor = 0;

	while (wire_next(w, items, &cursor, &item) > 0) {
		if (item.bytes && memchr(w->payload + item.at, 0, item.bytes))
			return -EINVAL;
		pack(p, w->payload + item.at, item.bytes);
	}
	return 0;
}

/* "NAME=" of an entry; all of one that has no "=". */
struct name {
	const char *at;
	uint32_t bytes;
};

/*
 * An environment on the wire, taken apart once. Its names are sorted: they are searched as often as
 * there are variables, and a client has a shard's time for a few hundred microseconds, not for each
 * with each.
 */
struct variables {
	const char *payload;
	uint32_t count;
	struct dsec_wire_ref items[EXEC_ENV_COUNT_MAX];
	struct name names[EXEC_ENV_COUNT_MAX];
};

static struct name name_of(const char *entry, uint32_t bytes)
{
	const char *equals = bytes ? memchr(entry, '=', bytes) : NULL;

	return (struct name){ entry, equals ? (uint32_t)(equals - entry) + 1 : bytes };
}

static int by_name(const void *a, const void *b)
{
	const struct name *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	return x->bytes ? memcmp(x->at, y->at, x->bytes) : 0;
}

static void variables_sort(struct variables *v)
{
	for (uint32_t i = 0; i < v->count; i++)
		v->names[i] = name_of(v->payload + v->items[i].at, v->items[i].bytes);
	qsort(v->names, v->count, sizeof *v->names, by_name);
}

static void variables_read(struct variables *v, const struct wire *w,
			   const struct dsec_wire_items *env)
{
	uint32_t cursor = 0;

	v->payload = w->payload;
	v->count = 0;
	while (v->count < EXEC_ENV_COUNT_MAX && wire_next(w, env, &cursor, &v->items[v->count]) > 0)
		v->count++;
	variables_sort(v);
}

/* Do they set the variable of "NAME=…"? */
static bool variables_set(const struct variables *v, const char *entry, uint32_t entry_bytes)
{
	const struct name name = name_of(entry, entry_bytes);

	return bsearch(&name, v->names, v->count, sizeof name, by_name);
}

/* ---- what the image says ---- */

static const struct image_record *record_of(const struct exec_strings_of *of)
{
	static const struct image_record none = { 0 };

	return of->image->record ? of->image->record : &none;
}

/* Its environment comes first, then its entrypoint, then its command. */
static void variables_of(struct variables *v, const struct image_record *record)
{
	uint32_t at = 0;

	v->payload = record->strings;
	for (v->count = 0; v->count < record->env_count; v->count++) {
		uint32_t bytes = (uint32_t)strlen(record->strings + at);

		v->items[v->count] = (struct dsec_wire_ref){ at, bytes };
		at += bytes + 1;
	}
	variables_sort(v);
}

static void pack_strings(struct packing *p, const struct image_record *record, uint32_t first,
			 uint32_t count)
{
	const char *at = record->strings;

	for (uint32_t i = 0; i < first + count; i++) {
		uint32_t bytes = (uint32_t)strlen(at);

		if (i >= first)
			pack(p, at, bytes);
		at += bytes + 1;
	}
}

/* As everywhere: arguments take the place of the image's command, not of its entrypoint. */
static int pack_argv(struct packing *p, const struct wire *w, const struct dsec_wire_exec *wish,
		     const struct image_record *record)
{
	uint32_t entrypoint = record->env_count, cmd = entrypoint + record->entrypoint_count;
	int r;

	if (wish->flags & DSEC_EXEC_IMAGE_COMMAND)
		pack_strings(p, record, entrypoint, record->entrypoint_count);
	r = pack_items(p, w, &wish->argv);
	if ((wish->flags & DSEC_EXEC_IMAGE_COMMAND) && !wish->argv.count)
		pack_strings(p, record, cmd, record->cmd_count);
	return r;
}

/* ---- the environment: the exec's over the sandbox's over the image's over the defaults ---- */

enum { ENV_WISHED, ENV_OWN, ENV_IMAGE, ENV_SOURCES };

static bool is_set_above(const struct variables *sources, uint32_t source, const char *entry,
			 uint32_t bytes)
{
	for (uint32_t above = 0; above < source; above++)
		if (variables_set(&sources[above], entry, bytes))
			return true;
	return false;
}

/* What nothing above sets. The wished ones are packed already. True: HOME is to be found out. */
static bool pack_env(struct packing *p, const struct variables *sources)
{
	static const char path[] = PATH_DEFAULT, home[] = "HOME=";

	for (uint32_t source = ENV_OWN; source < ENV_SOURCES; source++) {
		const struct variables *v = &sources[source];

		for (uint32_t i = 0; i < v->count; i++) {
			const char *entry = v->payload + v->items[i].at;

			if (!is_set_above(sources, source, entry, v->items[i].bytes))
				pack(p, entry, v->items[i].bytes);
		}
	}
	if (!is_set_above(sources, ENV_SOURCES, path, sizeof path - 1))
		pack(p, path, sizeof path - 1);
	return !is_set_above(sources, ENV_SOURCES, home, sizeof home - 1);
}

/* ---- all of it ---- */

/* Sizes first: what is too large is not walked. */
static struct status strings_check(const struct exec_strings_of *of, uint64_t bytes)
{
	const struct image_record *record = record_of(of);
	const struct dsec_wire_exec *wish = of->wish;
	const struct wire *w = of->payload;
	const char *cwd;

	if (bytes > EXEC_ARGUMENT_BYTES_MAX ||
	    (uint64_t)wish->argv.count + wish->env.count + of->env_count + record->env_count +
			    record->entrypoint_count + record->cmd_count + 2 >
		    STRINGS_MAX)
		return strings_too_many("argv",
					"argv, env and cwd: 128 KiB, 4,096 strings at most");
	if (wish->env.count > EXEC_ENV_COUNT_MAX)
		return strings_too_many("env", "512 variables at most");
	if (wire_items_check(w, &wish->argv) < 0)
		return strings_invalid("argv", -EINVAL);
	if (wire_items_check(w, &wish->env) < 0)
		return strings_invalid("env", -EINVAL);
	if (wire_bytes(w, wish->cwd, &cwd) < 0 || (cwd && memchr(cwd, 0, wish->cwd.bytes)))
		return strings_invalid("cwd", -EINVAL);
	return STATUS_OK;
}

static struct status no_command(const struct dsec_wire_exec *wish)
{
	struct status s = strings_invalid("argv", -EINVAL);

	if (wish->flags & DSEC_EXEC_IMAGE_COMMAND)
		s.detail = "no program was given, and the image names none";
	return s;
}

struct status exec_strings(const struct exec_strings_of *of, struct run_spec *ret)
{
	const struct dsec_wire_exec *wish = of->wish;
	const struct image_record *record = record_of(of);
	const struct wire *w = of->payload;
	const struct dsec_wire_items own_env = { 0, of->env.bytes, of->env_count, 0 };
	const uint64_t bytes = (uint64_t)wish->argv.bytes + wish->env.bytes + wish->cwd.bytes +
			       of->env.bytes + record->string_bytes + strlen(record->cwd) +
			       DEFAULTS_BYTES;
	struct status s = strings_check(of, bytes);
	struct variables sources[ENV_SOURCES];
	struct packing p = { 0 };

	if (s.code)
		return s;
	p.at = malloc(bytes);
	if (!p.at)
		return status_of_errno(-ENOMEM, "exec", "argv");
	*ret = (struct run_spec){ .strings = p.at, .user = of->user };
	if (pack_argv(&p, w, wish, record) < 0)
		return strings_invalid("argv", -EINVAL);
	if (!p.count)
		return no_command(wish);
	ret->argument_count = p.count;
	p.count = 0;
	if (pack_items(&p, w, &wish->env) < 0)
		return strings_invalid("env", -EINVAL);
	variables_read(&sources[ENV_WISHED], w, &wish->env);
	variables_read(&sources[ENV_OWN], &of->env, &own_env);
	variables_of(&sources[ENV_IMAGE], record);
	ret->wants_home = pack_env(&p, sources);
	ret->environment_count = p.count;
	if (wish->cwd.bytes)
		pack(&p, w->payload + wish->cwd.at, wish->cwd.bytes);
	else
		pack(&p, record->cwd, (uint32_t)strlen(record->cwd));
	ret->string_bytes = p.used;
	return STATUS_OK;
}
