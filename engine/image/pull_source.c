/*
 * What dsec-store pull is told of what a client asked for. Called by image_op.c, on the shard. Must
 * hold: a client that is not trusted with this machine's paths and network names nothing but an
 * image of the remote; the credentials of --remote-header-file go to the remote alone.
 */
#include "engine/image/pull_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/transfer.h"
#include "engine/base/cleanup.h"
#include "engine/config.h"
#include "engine/image/image.h"
#include "engine/image/job.h"
#include "engine/serve/remote.h"

static struct status source_status(uint32_t code, const char *detail)
{
	return (struct status){ .code = code,
				.blame = DSEC_BLAME_CALLER,
				.error = code == DSEC_INVALID ? EINVAL : 0,
				.table = "image",
				.step = "source",
				.detail = detail };
}

static bool begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

static bool is_address(const char *text)
{
	return begins(text, "http://") || begins(text, "https://");
}

/* Each text with its NUL. */
static struct status texts_set(struct image_words *words, const char *const *texts, uint32_t count)
{
	char *made = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&made, &bytes);

	if (!out)
		return status_of_errno(-ENOMEM, "image", "source");
	for (uint32_t i = 0; i < count; i++)
		(void)fprintf(out, "%s%c", texts[i], 0); /* fclose() tells */
	if (fclose(out) != 0) {
		free(made);
		return status_of_errno(-ENOMEM, "image", "source");
	}
	free(words->texts);
	words->texts = made;
	words->text_count = count;
	return STATUS_OK;
}

static struct status address_set(const struct config *config, struct image_words *words,
				 const char *address, const char *tag, const char *headers_path)
{
	char timeout[12];
	const char *const texts[] = { address,
				      tag,
				      config->fetch_path,
				      timeout,
				      headers_path ? headers_path : "",
				      config->remote_ca_path ? config->remote_ca_path : "" };

	(void)snprintf(timeout, sizeof timeout, "%u", config->remote_timeout_s); /* fits */
	return texts_set(words, texts, sizeof texts / sizeof *texts);
}

/* The server is one that a client names. */
static struct status named_set(const struct config *config, struct image_words *words)
{
	auto_free char *address = strdup(words->texts);
	const char *why, *tag = "";
	char *mark = address ? strchr(address, '#') : NULL;

	if (!address)
		return status_of_errno(-ENOMEM, "image", "source");
	if (mark) {
		*mark = 0;
		tag = mark + 1;
	}
	if (strlen(tag) >= LAYOUT_TAG_BYTES)
		return source_status(DSEC_INVALID, "its tag is longer than 128 bytes");
	if (remote_check(address, &why) < 0)
		return source_status(DSEC_INVALID, why);
	return address_set(config, words, address, tag, NULL);
}

static struct status remote_set(const struct config *config, struct image_words *words)
{
	char path[LAYOUT_PATH_BYTES];
	const char *remote = config->remote_address, *name = words->texts;
	const char *const texts[] = { path, name };

	if (image_name_check(name) < 0 || strlen(name) >= LAYOUT_TAG_BYTES)
		return source_status(DSEC_INVALID, "neither oci:DIR[:TAG], nor an address of HTTP, "
						   "nor an image's name");
	if (!remote)
		return source_status(DSEC_UNSUPPORTED,
				     "this engine has no remote: see dsecd --remote");
	if (is_address(remote)) {
		auto_free char *tag = strdup(name);

		return tag ? address_set(config, words, remote, tag, config->remote_header_path) :
			     status_of_errno(-ENOMEM, "image", "source");
	}
	/* dir:PATH, and 3fs:PATH: a pull reads the mounted file system. */
	if (snprintf(path, sizeof path, "dir:%s", strchr(remote, ':') + 1) >= (int)sizeof path)
		return source_status(DSEC_INVALID, "--remote: its path is too long");
	return texts_set(words, texts, sizeof texts / sizeof *texts);
}

struct status pull_source_set(const struct config *config, bool is_own, struct image_words *words)
{
	const bool is_layout = begins(words->texts, "oci:");

	if ((is_layout || is_address(words->texts)) && !is_own)
		return source_status(DSEC_DENIED,
				     "it names what this machine reaches: for root and "
				     "the engine's own uid; a NAME is of its remote");
	if (is_layout)
		return STATUS_OK;
	return is_address(words->texts) ? named_set(config, words) : remote_set(config, words);
}
