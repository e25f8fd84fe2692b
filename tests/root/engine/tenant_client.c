/*
 * Connections of tenants. Called by tests of tenants; a test's main() makes the folder.
 */
#include "tests/root/engine/tenant_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *folder_of(void)
{
	return getenv("DSEC_TEST_TENANTS"); /* set by tenant_folder_make() */
}

int way_try(struct engine *e, struct way way, struct dsec **ret)
{
	char path[128];
	struct dsec_open_opts opts = { .size = sizeof opts,
				       .address = e->socket,
				       .token = way.token,
				       .tenant = way.acts_for };

	(void)snprintf(path, sizeof path, "%s/%s.sock", folder_of(), way.door ? way.door : "");
	if (way.door)
		opts.address = path;
	return dsec_open(&opts, ret);
}

struct dsec *way_open(struct engine *e, struct way way)
{
	struct dsec *d = NULL;
	int r = way_try(e, way, &d);

	if (!expect(r == 0))
		note("%s", dsec_error(NULL, r));
	return d;
}

bool is_of(struct dsec *d, const char *name)
{
	const struct dsec_caps *caps;

	return d && dsec_capabilities(d, &caps) == 0 && !strcmp(caps->tenant, name);
}

struct answer answer_wait(struct dsec *d, int64_t ticket)
{
	struct answer answer = { .status = { .code = DSEC_LOST } };
	struct dsec_event *event;
	bool is_last = !expect(ticket >= 0);

	while (!is_last && expect(dsec_wait(d, ticket, -1, &event) == 0)) {
		is_last = event->flags & DSEC_LAST;
		answer.rows += event->kind == DSEC_EV_ROW;
		answer.status = event->status;
		dsec_event_free(event);
	}
	return answer;
}

/* ---- the folder ---- */

bool tenant_folder_make(char ret_folder[64])
{
	(void)snprintf(ret_folder, 64, "/tmp/dsec-tenants.XXXXXX");
	return mkdtemp(ret_folder) && setenv("DSEC_TEST_TENANTS", ret_folder, 1) == 0;
}

bool tenant_folder_remove(const char *const *names)
{
	char path[128];

	for (; *names; names++) {
		(void)snprintf(path, sizeof path, "%s/%s.token", folder_of(), *names);
		(void)unlink(path); /* there may be none of that name */
	}
	return rmdir(folder_of()) == 0;
}

bool tenant_token_write(const char *name, const char *token)
{
	char path[128];
	FILE *file;

	(void)snprintf(path, sizeof path, "%s/%s.token", folder_of(), name);
	file = fopen(path, "we");
	if (!file)
		return false;
	(void)fprintf(file, "%s\n", token); /* looked at by fclose() */
	return fclose(file) == 0 && chmod(path, 0600) == 0;
}
