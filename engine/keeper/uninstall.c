/*
 * `dsecd --uninstall`: becomes an instance for a moment, takes its lock, uids, cgroup root and
 * sockets, removes what a dead engine left and what it kept, and gives everything back. Called by
 * main.c. Must hold: an instance that somebody runs keeps its lock, so nothing of it is touched.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/config_fit.h"
#include "engine/engine.h"
#include "engine/keeper/instance.h"
#include "engine/keeper/keeper.h"

static const struct instance_places places = { .run = "/run/dsec" };

static int instance_uninstall(const struct config *config)
{
	struct engine_handover handover = { .cgroup_fd = -1 };
	struct instance instance;
	int r;

	if (instance_open(&instance, config, &places) < 0)
		return KEEPER_EXIT_REFUSED; /* it said why */
	handover.cgroup_fd = instance.cgroup_fd;
	r = engine_uninstall(config, &handover);
	if (instance_close(&instance, &places) < 0 || r < 0)
		return 1; /* likewise */
	log_info("instance %s: nothing of it is left", config->instance);
	return 0;
}

/* ---- every one ---- */

struct names {
	char (*names)[INSTANCE_BYTES_MAX];
	size_t count;
};

static bool is_instance(const char *name)
{
	const size_t bytes = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return bytes && !name[bytes] && bytes < INSTANCE_BYTES_MAX && strcmp(name, "uids") != 0;
}

static int name_add(struct names *names, const char *name)
{
	void *grown;

	for (size_t i = 0; i < names->count; i++)
		if (!strcmp(names->names[i], name))
			return 0;
	grown = realloc(names->names, (names->count + 1) * sizeof *names->names);
	if (!grown)
		return -ENOMEM;
	names->names = grown;
	strcpy(names->names[names->count++], name);
	return 0;
}

/* Folders that instances have there, by their names. */
static int names_read(struct names *names, const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	int r = 0;

	if (!folder)
		return errno == ENOENT ? 0 : -errno;
	while (r == 0 && (entry = readdir(folder)))
		if (entry->d_type == DT_DIR && is_instance(entry->d_name))
			r = name_add(names, entry->d_name);
	(void)closedir(folder); /* was only read */
	return r;
}

/* The worst of what became of them: 2 where one runs, 1 where something stays. */
static int all_uninstall(const struct config *config)
{
	struct names names = { 0 };
	int r = names_read(&names, places.run), worst = 0;

	if (r == 0)
		r = names_read(&names, config->state_path);
	for (size_t i = 0; r == 0 && i < names.count; i++) {
		struct config other = *config;
		char socket[sizeof "/run/dsec/.sock" + INSTANCE_BYTES_MAX];
		int status;

		strcpy(other.instance, names.names[i]);
		(void)snprintf(socket, sizeof socket,
			       strcmp(other.instance, "main") ? "/run/dsec/%s.sock" :
								"/run/dsec.sock",
			       other.instance);
		other.socket_path = socket;
		status = instance_uninstall(&other);
		worst = status > worst ? status : worst;
	}
	free(names.names);
	if (r < 0)
		log_error("instances below %s and %s: %s", places.run, config->state_path,
			  strerrordesc_np(-r));
	return r < 0 ? 1 : worst;
}

int keeper_uninstall(struct config *config)
{
	if (config_check(config) < 0)
		return KEEPER_EXIT_REFUSED; /* it said why */
	return config->uninstall_all ? all_uninstall(config) : instance_uninstall(config);
}
