/*
 * A shard's thread and loop. Started and stopped by the control thread. The loop: take requests,
 * wake clients, wait for completions, run what they call, expire timers.
 */
#include "engine/shard.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/channel.h"
#include "engine/client.h"
#include "engine/control.h"
#include "engine/exec.h"
#include "engine/records.h"
#include "engine/request.h"
#include "engine/sandbox.h"

enum { RING_ENTRIES = 4096, BACKLOG_POLL_NS = 1000000 };

struct starting {
	struct shard *shard;
	pthread_mutex_t lock;
	pthread_cond_t ready;
	bool done;
};

/* ---- mail to itself ---- */

void shard_send(struct shard *from, struct shard *to, struct mail *mail)
{
	if (from != to) {
		mail_send(from->io, to->io, mail);
		return;
	}
	mail->next = NULL;
	*from->local_last = mail;
	from->local_last = &mail->next;
}

/* What a delivery sends to this shard again waits for the next turn. */
static void shard_deliver_local(struct shard *shard)
{
	struct mail *mail = shard->local;

	shard->local = NULL;
	shard->local_last = &shard->local;
	while (mail) {
		struct mail *next = mail->next;

		mail->deliver(mail, shard);
		mail = next;
	}
}

void shard_walk(struct shard *shard, struct mail *mail)
{
	mail->next = NULL;
	*shard->walks_last = mail;
	shard->walks_last = &mail->next;
}

static void shard_walk_on(struct shard *shard)
{
	struct mail *mail = shard->walks;

	if (!mail)
		return;
	shard->walks = mail->next;
	if (!shard->walks)
		shard->walks_last = &shard->walks;
	mail->deliver(mail, shard);
}

/* ---- the loop ---- */

static uint64_t shard_wait_until(struct shard *shard, bool more)
{
	uint64_t until = timers_next(&shard->timers);

	if (more || shard->local || shard->walks || channels_rest(shard))
		return 0;
	/* A client that makes room in its rings need not tell: look again soon. */
	if (shard->backlogged && until > io_now_ns(shard->io) + BACKLOG_POLL_NS)
		until = io_now_ns(shard->io) + BACKLOG_POLL_NS;
	return until;
}

/* A callback over 1 ms is a bug of ours: say where, for addr2line(1). */
static void shard_watch(struct shard *shard)
{
	extern const char __executable_start;
	const struct io_stats *stats = io_stats(shard->io);

	if (stats->callbacks_over_1ms == shard->slow_seen)
		return;
	shard->slow_seen = stats->callbacks_over_1ms;
	log_warning(
		"callback slow shard=%u longest_us=%llu at=dsecd+0x%llx", shard->number,
		(unsigned long long)stats->callback_max_ns / 1000,
		(unsigned long long)(stats->callback_max_address - (uintptr_t)&__executable_start));
}

static void shard_turn_failed(const struct shard *shard, int error)
{
	log_error("shard loop failed shard=%u err=%s", shard->number, strerror(-error));
	if (error == -EBADR)
		abort(); /* the kernel lost completions: only another engine can know the truth */
	(void)sched_yield(); /* whatever it is, it must not eat the CPU */
}

static void shard_run(struct shard *shard)
{
	(void)io_turn(shard->io,
		      0); /* the watchdog's clock begins here, not where pools were filled */
	while (!shard->ended) {
		bool more = channels_drain(shard);
		int r;

		io_account(shard->io, (uintptr_t)channels_drain);
		shard_deliver_local(shard);
		io_account(shard->io, (uintptr_t)shard_deliver_local);
		shard_walk_on(shard);
		io_account(shard->io, (uintptr_t)shard_walk_on);
		channels_announce(shard);
		io_account(shard->io, (uintptr_t)channels_announce);
		shard_watch(shard);
		r = io_turn(shard->io, shard_wait_until(shard, more));
		if (r < 0)
			shard_turn_failed(shard, r);
		timers_run(&shard->timers, io_now_ns(shard->io));
		io_account(shard->io, (uintptr_t)timers_run);
	}
}

/* ---- stopping ---- */

static void slots_given_back(void *owner)
{
	struct shard *shard = owner;

	control_shard_stopped(shard->node->control, shard);
}

void shard_check_stopped(struct shard *shard)
{
	if (!shard->stopping || shard->draining || shard->sandboxes_live || shard->clients_live ||
	    pool_taken(&shard->requests))
		return;
	shard->draining = true;
	shard->backend->class->drain(shard->backend, slots_given_back);
}

static void stop_arrived(struct mail *mail, void *owner)
{
	struct shard *shard = owner;

	(void)mail;
	shard->stopping = true;
	clients_close(shard);
	sandboxes_destroy_all(shard);
	shard_check_stopped(shard);
}

void shard_stop(struct shard *shard, struct io *from)
{
	shard->stop_mail.deliver = stop_arrived;
	mail_send(from, shard->io, &shard->stop_mail);
}

static void end_arrived(struct mail *mail, void *owner)
{
	struct shard *shard = owner;

	(void)mail;
	shard->ended = true;
}

void shard_end(struct shard *shard, struct io *from)
{
	shard->end_mail.deliver = end_arrived;
	mail_send(from, shard->io, &shard->end_mail);
}

/* ---- starting ---- */

static void launcher_lost(void *owner)
{
	struct shard *shard = owner;

	control_launcher_lost(shard->node->control, shard);
}

static void launcher_stuck(void *owner, int pid)
{
	struct shard *shard = owner;

	control_launcher_stuck(shard->node->control, shard, pid);
}

static int shard_fill_pools(struct shard *shard)
{
	const struct node *node = shard->node;
	uint32_t timers = node->sandboxes_per_shard * 2 + node->execs_per_shard * 2 +
			  node->requests_per_shard + shard->config->clients_max + 64;
	int r;

	r = timers_init(&shard->timers, timers);
	if (r < 0)
		return r;
	r = pool_init(&shard->sandboxes, sizeof(struct sandbox), node->sandboxes_per_shard);
	if (r < 0)
		return r;
	r = pool_init(&shard->execs, exec_bytes(), node->execs_per_shard);
	if (r < 0)
		return r;
	r = pool_init(&shard->requests, sizeof(struct request), node->requests_per_shard);
	if (r < 0)
		return r;
	shard->records = calloc(1, sizeof *shard->records);
	return shard->records ? records_init(shard->records, node->epoch, node->epoch_ns) : -ENOMEM;
}

static int shard_open(struct shard *shard)
{
	const struct config *config = shard->config;
	struct node *node = shard->node;
	struct io_options io_options = { .entries = RING_ENTRIES, .owner = shard };
	struct backend_options options = {
		.node = node->backend_node,
		.host = &shard->host,
		.shard = shard->number,
		.boxes_max = node->sandboxes_per_shard,
		.runs_max = node->execs_per_shard,
		.launchers = config->launchers,
		.slot_uses_max = config->slot_uses_max,
		.disk_bytes = config->disk_bytes,
		.inodes = config->disk_inodes,
		.processes_max = config->pids_max,
		.owner = shard,
		.launcher_lost = launcher_lost,
		.launcher_stuck = launcher_stuck,
	};
	int r;

	r = shard_fill_pools(shard);
	if (r < 0)
		return r;
	r = io_open(&io_options, &shard->io);
	if (r < 0)
		return r;
	shard->flow_stats = calloc(1, sizeof *shard->flow_stats);
	if (!shard->flow_stats)
		return -ENOMEM;
	shard->host = (struct flow_host){
		.io = shard->io,
		.timers = &shard->timers,
		.fault = config->fault,
		.stats = shard->flow_stats,
	};
	return container_open(&options, &shard->backend);
}

/* What needs the thread's own ring goes on it. */
static void shard_close(struct shard *shard)
{
	if (shard->backend)
		shard->backend->class->close(shard->backend);
	io_close(shard->io);
	free(shard->flow_stats);
	if (shard->records)
		records_done(shard->records);
	free(shard->records);
	pool_done(&shard->requests);
	pool_done(&shard->execs);
	pool_done(&shard->sandboxes);
	timers_done(&shard->timers);
}

static void shard_pin(const struct shard *shard)
{
	cpu_set_t allowed, own;
	uint32_t nth = shard->number;

	if (!shard->config->pin_shards || sched_getaffinity(0, sizeof allowed, &allowed) < 0)
		return;
	CPU_ZERO(&own);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed) || nth--)
			continue;
		CPU_SET(cpu, &own);
		/* More shards than CPUs, or a CPU that went: the scheduler places the rest. */
		(void)sched_setaffinity(0, sizeof own, &own);
		return;
	}
}

static void *shard_main(void *argument)
{
	struct starting *starting = argument;
	struct shard *shard = starting->shard;
	int error;

	shard_pin(shard);
	error = shard->start_error = shard_open(shard);
	pthread_mutex_lock(&starting->lock);
	starting->done = true;
	pthread_cond_signal(&starting->ready);
	pthread_mutex_unlock(&starting->lock);
	if (!error)
		shard_run(shard);
	shard_close(shard);
	return NULL;
}

int shard_start(struct node *node, uint32_t number, struct shard **ret)
{
	struct starting starting = { .lock = PTHREAD_MUTEX_INITIALIZER,
				     .ready = PTHREAD_COND_INITIALIZER };
	struct shard *shard = calloc(1, sizeof *shard);
	char name[16];
	int r;

	if (!shard)
		return -ENOMEM;
	shard->node = node;
	shard->config = node->config;
	shard->number = number;
	shard->local_last = &shard->local;
	shard->walks_last = &shard->walks;
	starting.shard = shard;
	r = -pthread_create(&shard->thread, NULL, shard_main, &starting);
	if (r < 0) {
		free(shard);
		return r;
	}
	(void)snprintf(name, sizeof name, "shard-%u", number);
	(void)pthread_setname_np(shard->thread, name); /* for people only */
	pthread_mutex_lock(&starting.lock);
	while (!starting.done)
		pthread_cond_wait(&starting.ready, &starting.lock);
	pthread_mutex_unlock(&starting.lock);
	r = shard->start_error;
	if (r < 0) {
		(void)pthread_join(shard->thread, NULL);
		free(shard);
		return r;
	}
	*ret = shard;
	return 0;
}

void shard_free(struct shard *shard)
{
	if (!shard)
		return;
	(void)pthread_join(shard->thread, NULL);
	free(shard);
}
