/*
 * Packing argv, env and working directory for the backend. Called by exec.c. Refuses what execve(2)
 * cannot carry; the lists were written by a client and are checked before anything is copied.
 */
#include "engine/exec_strings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config.h"
#include "engine/sandbox.h"

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

/* Does the list set the variable of "NAME=…"? */
static bool env_sets(const struct wire *w, const struct dsec_wire_items *env, const char *entry,
		     uint32_t entry_bytes)
{
	const char *equals = memchr(entry, '=', entry_bytes);
	uint32_t name_bytes = equals ? (uint32_t)(equals - entry) + 1 : entry_bytes;
	struct dsec_wire_ref item;
	uint32_t cursor = 0;

	while (wire_next(w, env, &cursor, &item) > 0)
		if (item.bytes >= name_bytes && !memcmp(w->payload + item.at, entry, name_bytes))
			return true;
	return false;
}

/* The sandbox's own entries and the defaults, where nothing above them sets the same name. */
static int pack_env(struct packing *p, const struct sandbox *sandbox, const struct wire *w,
		    const struct dsec_wire_items *env, bool is_root)
{
	const struct wire own = { sandbox->env.bytes, sandbox->env.byte_count };
	const struct dsec_wire_items own_env = { 0, own.bytes, sandbox->env.count, 0 };
	static const char *const defaults[] = { PATH_DEFAULT, "HOME=/root" };
	struct dsec_wire_ref item;
	uint32_t cursor = 0;
	int r;

	r = pack_items(p, w, env);
	if (r < 0)
		return r;
	while (wire_next(&own, &own_env, &cursor, &item) > 0) {
		const char *entry = own.payload + item.at;

		if (memchr(entry, 0, item.bytes))
			return -EINVAL;
		if (!env_sets(w, env, entry, item.bytes))
			pack(p, entry, item.bytes);
	}
	for (uint32_t i = 0; i < (is_root ? 2 : 1); i++) {
		uint32_t bytes = (uint32_t)strlen(defaults[i]);

		if (!env_sets(w, env, defaults[i], bytes) &&
		    !env_sets(&own, &own_env, defaults[i], bytes))
			pack(p, defaults[i], bytes);
	}
	return 0;
}

static struct status strings_check(const struct sandbox *sandbox, const struct wire *w,
				   const struct dsec_wire_exec *wish)
{
	uint64_t bytes = (uint64_t)wish->argv.bytes + wish->env.bytes + wish->cwd.bytes +
			 sandbox->env.byte_count + DEFAULTS_BYTES;
	const char *cwd;

	if (wire_items_check(w, &wish->argv) < 0 || !wish->argv.count)
		return strings_invalid("argv", -EINVAL);
	if (wire_items_check(w, &wish->env) < 0)
		return strings_invalid("env", -EINVAL);
	if (wire_bytes(w, wish->cwd, &cwd) < 0 || (cwd && memchr(cwd, 0, wish->cwd.bytes)))
		return strings_invalid("cwd", -EINVAL);
	if (bytes > EXEC_ARGUMENT_BYTES_MAX ||
	    (uint64_t)wish->argv.count + wish->env.count + sandbox->env.count + 2 > STRINGS_MAX)
		return strings_invalid("argv", -E2BIG);
	return STATUS_OK;
}

struct status exec_strings(const struct sandbox *sandbox, const struct request *request,
			   const char *user, struct run_spec *ret)
{
	const struct dsec_wire_exec *wish = &request->body.exec;
	const struct wire *w = &request->payload;
	struct status s = strings_check(sandbox, w, wish);
	struct packing p = { 0 };

	if (s.code)
		return s;
	p.at = malloc((size_t)wish->argv.bytes + wish->env.bytes + wish->cwd.bytes +
		      sandbox->env.byte_count + DEFAULTS_BYTES);
	if (!p.at)
		return status_of_errno(-ENOMEM, "exec", "argv");
	*ret = (struct run_spec){ .strings = p.at, .user = user };
	if (pack_items(&p, w, &wish->argv) < 0)
		return strings_invalid("argv", -EINVAL);
	ret->argument_count = p.count;
	p.count = 0;
	if (pack_env(&p, sandbox, w, &wish->env, !*user || !strcmp(user, "root")) < 0)
		return strings_invalid("env", -EINVAL);
	ret->environment_count = p.count;
	pack(&p, w->payload + wish->cwd.at, wish->cwd.bytes);
	ret->string_bytes = p.used;
	return STATUS_OK;
}
