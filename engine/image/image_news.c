/*
 * Events of images. Called by image_files.c and job_run.c on the control thread. Must hold: the
 * answer is delivered once, whether there is something to tell or not, and after that was told.
 */
#include "engine/image/image_news.h"

#include "engine/base/cleanup.h"
#include "engine/control.h"
#include "engine/events/news.h"
#include "engine/events/subscribe.h"
#include "engine/shard.h"

/* On the shard with the journal. */
static void news_arrived(struct mail *mail, void *owner)
{
	struct image_news *news = container_of(mail, struct image_news, mail);
	struct shard *shard = owner;

	news_of_image(shard, news->name, news->topic);
	shard_send(shard, news->asker, news->answer);
}

void image_news_send(struct control *control, struct image_news *news)
{
	struct shard *asker = news->asker;

	if (!news->topic) {
		mail_send(control_io(control), asker->io, news->answer);
		return;
	}
	news->mail.deliver = news_arrived;
	mail_send(control_io(control), asker->node->shards[SUBSCRIPTIONS_SHARD]->io, &news->mail);
}
