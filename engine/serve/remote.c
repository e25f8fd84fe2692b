/*
 * What all remotes have in common: the order in which reads begin, the bound of their time, and how
 * each ends once. Called by whoever serves blobs, on the shard's thread.
 *
 * Must hold: a read is in exactly one of the lists until its done(); those of `asked` end in the
 * order of the list when time passes, and those in flight come before those that wait; done() is
 * called by the timer only, so whatever it asks for finds no list half changed.
 */
#include "engine/serve/remote.h"

#include <errno.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/config.h"
#include "engine/serve/remote_class.h"
#include "engine/shard.h"

#define NS_PER_S 1000000000ull

static const struct remote_class *const classes[] = { &remote_3fs, &remote_directory,
						      &remote_http };

/* ---- lists ---- */

static void reads_add(struct remote_reads *reads, struct remote_read *read)
{
	read->next = NULL;
	read->previous = reads->last;
	if (reads->last)
		reads->last->next = read;
	else
		reads->first = read;
	reads->last = read;
}

static void reads_remove(struct remote_reads *reads, struct remote_read *read)
{
	if (read->previous)
		read->previous->next = read->next;
	else
		reads->first = read->next;
	if (read->next)
		read->next->previous = read->previous;
	else
		reads->last = read->previous;
}

/* Out of `asked`, and nobody writes to its buffer any more. */
static void read_take(struct remote *remote, struct remote_read *read)
{
	if (remote->waiting == read)
		remote->waiting = read->next;
	reads_remove(&remote->asked, read);
	if (read->flight)
		remote->class->drop(remote, read);
	read->flight = NULL;
}

/* ---- time ---- */

static void timer_renew(struct remote *remote)
{
	struct timers *timers = &remote->shard->timers;

	/* Of the few that a shard's heap has room for beyond what it counts. */
	if (remote->ended.first)
		(void)timer_set(timers, &remote->timer, io_now_ns(remote->shard->io));
	else if (remote->asked.first)
		(void)timer_set(timers, &remote->timer, remote->asked.first->until_ns);
	else
		timer_clear(timers, &remote->timer);
}

/* It will be told by the timer. */
static void read_ends(struct remote *remote, struct remote_read *read, int result)
{
	read->result = result;
	read->has_ended = true;
	reads_add(&remote->ended, read);
}

/* What a done() asks for now is told the next time. */
static void ended_tell(struct remote *remote)
{
	const struct remote_read *last = remote->ended.last;
	struct remote_read *read;

	while (last && (read = remote->ended.first)) {
		const bool is_last = read == last;

		reads_remove(&remote->ended, read);
		read->done(read, read->result);
		if (is_last)
			break;
	}
}

static void timer_expired(struct timer *timer)
{
	struct remote *remote = container_of(timer, struct remote, timer);
	const uint64_t now_ns = io_now_ns(remote->shard->io);
	struct remote_read *read;

	while ((read = remote->asked.first) && read->until_ns <= now_ns) {
		read_take(remote, read);
		read_ends(remote, read, -ETIMEDOUT);
	}
	ended_tell(remote);
	remote_next(remote);
}

/* ---- for the kinds ---- */

void remote_init(struct remote *remote, const struct remote_class *class, struct shard *shard)
{
	*remote = (struct remote){
		.class = class,
		.shard = shard,
		.timer.expired = timer_expired,
	};
}

void remote_end(struct remote *remote, struct remote_read *read, int result)
{
	read->flight = NULL;
	read_take(remote, read);
	read_ends(remote, read, result);
	timer_renew(remote);
}

void remote_next(struct remote *remote)
{
	struct remote_read *read;

	while ((read = remote->waiting)) {
		int r;

		remote->waiting = read->next;
		r = remote->class->start(remote, read);
		if (r == 0)
			continue;
		if (r == -EAGAIN) {
			remote->waiting = read;
			break;
		}
		reads_remove(&remote->asked, read);
		read_ends(remote, read, r);
	}
	timer_renew(remote);
}

/* ---- for those who ask ---- */

static const struct remote_class *class_find(const char *address, const char **ret_where)
{
	for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
		const size_t bytes = strlen(classes[i]->scheme);

		if (strncmp(address, classes[i]->scheme, bytes) != 0)
			continue;
		*ret_where = address + (classes[i]->keeps_scheme ? 0 : bytes);
		return classes[i];
	}
	return NULL;
}

int remote_check(const char *address, const char **ret_why)
{
	const char *where;
	const struct remote_class *class = class_find(address, &where);

	if (class)
		return class->check(where, ret_why);
	*ret_why = "it begins with none of dir:, 3fs:, http:// and https://";
	return -EINVAL;
}

int remote_open(const char *address, struct shard *shard, struct remote **ret)
{
	const char *where;
	const struct remote_class *class = class_find(address, &where);

	return class ? class->open(where, shard, ret) : -EINVAL;
}

void remote_read(struct remote *remote, struct remote_read *read)
{
	const struct shard *shard = remote->shard;

	read->flight = NULL;
	read->has_ended = false;
	read->until_ns = io_now_ns(shard->io) + shard->config->remote_timeout_s * NS_PER_S;
	if (!read->bytes || read->bytes > REMOTE_BYTES_MAX) {
		read_ends(remote, read, -EINVAL);
		timer_renew(remote);
		return;
	}
	reads_add(&remote->asked, read);
	if (!remote->waiting)
		remote->waiting = read;
	remote_next(remote);
}

void remote_cancel(struct remote *remote, struct remote_read *read)
{
	if (!read->has_ended) {
		read_take(remote, read);
		read_ends(remote, read, -ECANCELED);
	}
	read->result = -ECANCELED;
	timer_renew(remote);
}

void remote_doubt(struct remote *remote, const uint8_t blob[DIGEST_BYTES])
{
	if (remote->class->doubt)
		remote->class->doubt(remote, blob);
}

void remote_close(struct remote *remote)
{
	if (!remote)
		return;
	timer_clear(&remote->shard->timers, &remote->timer);
	remote->class->close(remote);
}
