/*
 * Files of unnamed images. Called by forks on their shard, and as the engine starts. Must hold:
 * only files of this instance are touched: another engine may share the directory.
 */
#include "engine/image/image_drop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/control.h"
#include "engine/shard.h"

#define FOLDER ".fork"

struct drop {
	struct mail mail;
	char name[IMAGE_NAME_MAX];
};

void image_unnamed(const struct shard *shard, uint64_t hi, uint64_t lo, char ret[IMAGE_NAME_MAX])
{
	(void)snprintf(ret, IMAGE_NAME_MAX, FOLDER "/%s.%llx.%llx.%llx", shard->config->instance,
		       (unsigned long long)hi, (unsigned long long)lo,
		       (unsigned long long)io_now_ns(shard->io)); /* fits */
}

/* On the control thread. */
static void drop_run(struct mail *mail, void *owner)
{
	struct drop *drop = container_of(mail, struct drop, mail);
	struct control *control = owner;
	const struct config *config = control_config(control);
	char path[PATH_MAX];

	if (image_path(config, drop->name, path, sizeof path) < 0 ||
	    (unlink(path) < 0 && errno != ENOENT))
		log_error("image stays name=\"%s\" err=%s, continuing", drop->name,
			  strerror(errno));
	free(drop);
	images_refresh(control, config);
}

void image_drop(struct shard *shard, const char *name)
{
	struct drop *drop = calloc(1, sizeof *drop);

	if (!drop) {
		log_error("image stays name=\"%s\" err=ENOMEM, continuing", name);
		return; /* the next engine of this instance drops it */
	}
	(void)snprintf(drop->name, sizeof drop->name, "%s", name);
	drop->mail.deliver = drop_run;
	mail_send(shard->io, control_io(shard->node->control), &drop->mail);
}

void images_drop_left(const struct config *config)
{
	const size_t bytes = strlen(config->instance);
	const struct dirent *entry;
	char path[PATH_MAX];
	DIR *folder;

	if (snprintf(path, sizeof path, "%s/" FOLDER, config->images_path) >= (int)sizeof path)
		return;
	folder = opendir(path);
	while (folder && (entry = readdir(folder)))
		if (!strncmp(entry->d_name, config->instance, bytes) && entry->d_name[bytes] == '.')
			(void)unlinkat(dirfd(folder), entry->d_name, 0); /* the next time, else */
	if (folder)
		(void)closedir(folder); /* only read */
}
