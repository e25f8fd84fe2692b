/*
 * What became of images, on its way from the control thread, which does one thing after the other,
 * to the shard with the journal, and with the answer from there to who asked: so the events of an
 * image have their order, and who has its answer finds them told.
 */
#pragma once

#include <stdint.h>

#include "engine/base/io.h"

struct control;
struct shard;

struct image_news {
	uint32_t topic; /* enum dsec_topic; 0: nothing happened */
	const char *name;
	struct mail mail;
	struct mail *answer; /* its deliver is set */
	struct shard *asker;
};

/* On the control thread: all but `mail` is filled in, and lives until the answer is delivered. */
void image_news_send(struct control *control, struct image_news *news);
