/*
 * A shard's thread: what it is made of, and its start. Called by the control thread.
 */
#include "engine/shard.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/control.h"
#include "engine/file/file.h"
#include "engine/names/resolver.h"
#include "engine/port/port.h"
#include "engine/request/request.h"
#include "engine/serve/server.h"
#include "engine/sandbox/sandbox.h"
#include "engine/tenant/tenancy.h"

enum { RING_ENTRIES = 4096 };

struct starting {
	struct shard *shard;
	pthread_mutex_t lock;
	pthread_cond_t ready;
	bool done;
};

/* ---- starting ---- */

static void launcher_lost(void *owner)
{
	struct shard *shard = owner;

	control_launcher_lost(shard->node->control, shard);
}

static void launcher_wanted(void *owner)
{
	struct shard *shard = owner;

	control_launcher_wanted(shard->node->control, shard);
}

static void launcher_stuck(void *owner, int pid)
{
	struct shard *shard = owner;

	control_launcher_stuck(shard->node->control, shard, pid);
}

static void box_emptied(void *owner, uint64_t cgroup_id)
{
	resolver_emptied(owner, cgroup_id);
	integrity_emptied(owner, cgroup_id);
}

/* Of a limit of the node: the shares' sum is the limit. */
static uint32_t share_of(const struct shard *shard, uint32_t limit)
{
	return limit / shard->config->shards + (shard->number < limit % shard->config->shards);
}

/* Operations on files: where few execs fit, no more than those. */
static uint32_t shard_files_max(const struct shard *shard)
{
	uint32_t execs = shard->node->execs_per_shard;

	return execs < FILES_PER_SHARD_MAX ? execs : FILES_PER_SHARD_MAX;
}

/* Of execs, at least one. */
static uint32_t client_share_of(const struct shard *shard)
{
	uint32_t limit = shard->config->client_execs_max, share;

	share = limit ? share_of(shard, limit) : shard->execs_max - shard->execs_max / 4;
	return share ? share : 1;
}

static int shard_fill_pools(struct shard *shard)
{
	const struct node *node = shard->node;
	uint32_t timers = node->sandboxes_per_shard * 2 + node->execs_per_shard * 4 +
			  shard_files_max(shard) + node->requests_per_shard +
			  shard->config->clients_max + shard->config->inbounds_max +
			  PORT_WAITS_MAX + CALLS_PER_SHARD_MAX + CALL_SETS_PER_SHARD_MAX +
			  node->tenant_count + 80;
	int r;

	r = timers_init(&shard->timers, timers);
	if (r < 0)
		return r;
	r = pool_init(&shard->sandboxes, sizeof(struct sandbox),
		      share_of(shard, shard->config->sandboxes_max));
	if (r < 0)
		return r;
	shard->execs_max = share_of(shard, shard->config->execs_max);
	r = shares_init(&shard->shares, shard->execs_max, client_share_of(shard));
	if (r < 0)
		return r;
	r = shares_init(&shard->ends, shard->sandboxes.count, ENDS_AT_ONCE);
	if (r < 0)
		return r;
	r = sinks_init(&shard->sinks);
	if (r < 0)
		return r;
	r = pool_init(&shard->files, file_bytes(), shard_files_max(shard));
	if (r < 0)
		return r;
	r = pool_init(&shard->requests, sizeof(struct request), node->requests_per_shard);
	if (r < 0)
		return r;
	r = forwards_init(&shard->forwards, shard);
	if (r < 0)
		return r;
	r = functions_init(shard);
	return r < 0 ? r : tenancies_init(shard);
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
		.boxes_max = node->sandboxes_per_shard + CALL_SETS_PER_SHARD_MAX,
		.runs_max = node->execs_per_shard + shard_files_max(shard) + CALLS_PER_SHARD_MAX,
		.launchers = config->launchers,
		.slot_uses_max = config->slot_uses_max,
		.disk_bytes = config->disk_bytes,
		.inodes = config->disk_inodes,
		.processes_max = config->pids_max,
		.owner = shard,
		.launcher_lost = launcher_lost,
		.launcher_wanted = launcher_wanted,
		.launcher_stuck = launcher_stuck,
		.box_emptied = box_emptied,
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
	if (control_serve(node->control))
		r = server_open(shard, &shard->server);
	if (r >= 0)
		r = integrity_open(shard, node->guard);
	if (r == 0)
		r = resolver_open(shard);
	return r < 0 ? r : container_open(&options, &shard->backend);
}

/* What needs the thread's own ring goes on it. */
static void shard_close(struct shard *shard)
{
	/* Ended operations of what is left may still write: the process' end frees it all. */
	if (shard->gave_up)
		return;
	if (shard->backend)
		shard->backend->class->close(shard->backend);
	server_close(shard->server);
	io_close(shard->io);
	server_free(shard->server);
	resolver_close(shard);
	integrity_close(shard);
	free(shard->flow_stats);
	tenancies_done(shard);
	shares_done(&shard->shares);
	shares_done(&shard->ends);
	forwards_done(&shard->forwards);
	functions_done(shard);
	pool_done(&shard->requests);
	pool_done(&shard->files);
	sinks_done(&shard->sinks);
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

static void shard_hurry(struct shard *shard)
{
	int r = priority_open(&shard->priority, shard->config->realtime_percent);

	if (r < 0 && shard->number == 0)
		log_warning("shards are no realtime threads err=%s: busy clients keep others"
			    " waiting for longer: it needs CAP_SYS_NICE and realtime time for its"
			    " cgroup, continuing",
			    strerror(-r));
}

static void shard_run(struct shard *shard)
{
	shard_hurry(shard);
	/* The watchdog's clock begins here, not where pools were filled. */
	(void)io_turn(shard->io, 0);
	while (!shard->ended) {
		shard_turn(shard);
		priority_turn(&shard->priority, io_now_ns(shard->io));
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
