/*
 * A node for fuzz runs. Called by the fuzz targets. Stands for control.c: it admits clients, opens
 * one image at a time and hears that shards stopped. Must hold at the end: shards stop, and every
 * descriptor is closed.
 */
#include "tests/fuzz/node.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/backend.h"
#include "dsec/ring.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/client/client.h"
#include "engine/control.h"
#include "engine/file/file.h"
#include "engine/image/image.h"
#include "engine/serve/devices.h"
#include "engine/serve/serve.h"
#include "engine/image/image_files.h"
#include "engine/image/job.h"
#include "engine/policy/policies.h"
#include "engine/request/records.h"
#include "engine/request/request.h"
#include "engine/sandbox/sandbox.h"
#include "engine/tenant/tenancy.h"
#include "tests/fuzz/backend_stub.h"
#include "tests/fuzz/kernel.h"

enum { SETTLE_TURNS_MAX = 20000, FUZZ_RECORDS = 512 };

#define MONTH_NS (31 * 24 * 3600 * 1000000000ull)

struct control {
	struct io *io;
	struct image_table images;
	struct policy_table policies;
	uint32_t stopped;
	struct choices *choices;
	const struct config *config;
};

/* ---- what shards ask of the control thread ---- */

struct io *control_io(struct control *control)
{
	return control->io;
}

const struct config *control_config(const struct control *control)
{
	return control->config;
}

struct image_table *control_images(struct control *control)
{
	return &control->images;
}

struct policy_table *control_policies(struct control *control)
{
	return &control->policies;
}

/* No program is run for what the engine makes of itself. */
int image_run_begin(struct image_run *run)
{
	run->step = "stop";
	return -ECANCELED;
}

/* A job ends as soon as it begins, in one of many ways, with or without a frame. */
void image_job_begin(struct mail *mail, void *owner)
{
	struct image_job *job = container_of(mail, struct image_job, mail);
	struct control *control = owner;
	struct choices *c = control->choices;
	struct import_frame frame = { .kind = 1 + choose(c, 3),
				      .error = choose(c, 2) ? EINVAL : 0 };

	memset(frame.reason, choose(c, 2) ? 'r' : 0, choose(c, sizeof frame.reason));
	memset(frame.name, 'n', choose(c, sizeof frame.name));
	if (choose(c, 2))
		(void)!write(job->its_status_fd, &frame, choose(c, 4) ? sizeof frame : 7);
	if (job->its_stream_fd >= 0)
		(void)close(job->its_stream_fd);
	(void)close(job->its_status_fd);
	if (job->further_fd >= 0)
		(void)close(job->further_fd);
	if (choose(c, 4) == 3 && !job->is_import) {
		job->report_bytes = choose(c, IMAGE_REPORT_BYTES_MAX);
		job->report = calloc(1, job->report_bytes + 1);
		job->report_bytes = job->report ? job->report_bytes : 0;
	}
	job->result = choose(c, 2) ? -EPROTO : -ENOSPC;
	job->step = "disk";
	if (choose(c, 4) == 3) {
		job->record = calloc(1, sizeof *job->record);
		job->result = job->record ? 0 : -ENOMEM;
	}
	job->mail.deliver = image_job_home;
	mail_send(control->io, job->part->shard->io, &job->mail);
}

void image_job_kill(struct mail *mail, void *owner)
{
	struct image_job *job = container_of(mail, struct image_job, cancel_mail);
	struct control *control = owner;

	job->cancel_mail.deliver = image_job_kill_home;
	mail_send(control->io, job->part->shard->io, &job->cancel_mail);
}

/* The answer goes home, by way of the journal where an image went. */
void image_query_run(struct mail *mail, void *owner)
{
	struct image_query *query = container_of(mail, struct image_query, mail);
	struct control *control = owner;
	uint32_t count = choose(control->choices, 70);

	if (query->verb == DSEC_IMAGE_REMOVE)
		count = 0;
	else if (query->verb == DSEC_IMAGE_INSPECT)
		count = choose(control->choices, 2);
	for (uint32_t i = 0; i < count; i++) {
		struct image_found *found = calloc(1, sizeof *found);

		found->next = query->found;
		query->found = found;
		if (query->verb == DSEC_IMAGE_INSPECT)
			found->record = calloc(1, sizeof *found->record);
	}
	query->users = choose(control->choices, 3);
	query->result = query->verb == DSEC_IMAGE_LIST || count ? 0 :
			query->users == 2			? -EBUSY :
								  -ENOENT;
	if (query->verb == DSEC_IMAGE_REMOVE && !query->users) {
		query->result = 0;
		query->news.topic = DSEC_TOPIC_IMAGE_REMOVED;
	}
	query->mail.deliver = query->answered;
	query->news.name = query->name;
	query->news.answer = &query->mail;
	query->news.asker = query->part->shard;
	image_news_send(control, &query->news);
}

void image_found_free(struct image_found *found)
{
	while (found) {
		struct image_found *next = found->next;

		free(found->record);
		free(found);
		found = next;
	}
}

int backend_image_mount(const char *path, const struct backend_devices *devices, int *ret_mount_fd)
{
	const char *name = strrchr(path, '/');

	(void)devices;
	/* What a name may not be must never come here: no part of it begins with a dot. */
	assert(!strstr(path, "/.") || !strncmp(path, "/images/.fork/", 14));
	assert(!strncmp(path, "/images/", 8));
	if (strcmp(name, "/tiny.erofs") != 0 && strcmp(name, "/other.erofs") != 0 &&
	    !strstr(path, "/.fork/"))
		return -ENOENT;
	*ret_mount_fd = dup(0);
	return *ret_mount_fd < 0 ? -errno : 0;
}

/* Images of this world are whole. */
int devices_open(struct devices *devices, const struct devices_ask *ask)
{
	(void)ask;
	devices->list = (struct backend_devices){ .fds = devices->fds };
	return 0;
}

void devices_close(struct devices *devices)
{
	(void)devices;
}

void devices_keep(struct devices *devices, struct image *image)
{
	(void)devices;
	(void)image;
}

void serve_put(struct serve_entry *entry)
{
	(void)entry;
}

static void place_came_back(struct mail *mail, void *owner)
{
	(void)owner;
	free(mail);
}

void control_client_gone(struct control *control, struct shard *shard, struct mail *place)
{
	place->deliver = place_came_back;
	mail_send(shard->io, control->io, place);
}

void control_shard_stopped(struct control *control, struct shard *shard)
{
	(void)shard;
	control->stopped++;
}

/* ---- shards ---- */

static void shard_make(struct fuzz_node *node, uint32_t number)
{
	struct shard *shard = calloc(1, sizeof *shard);
	struct io_options options = { .entries = 64,
				      .owner = shard,
				      .world = kernel_world(node->kernel) };
	struct stub_options stub = { .host = &shard->host,
				     .choices = node->choices,
				     .boxes_max = FUZZ_SANDBOXES,
				     .runs_max = FUZZ_EXECS,
				     .owner = shard };
	int r;

	shard->node = &node->node;
	shard->config = &node->config;
	shard->number = number;
	shard->local_last = &shard->local;
	r = timers_init(&shard->timers, 1024);
	r |= pool_init(&shard->sandboxes, sizeof(struct sandbox), FUZZ_SANDBOXES);
	shard->execs_max = FUZZ_EXECS;
	r |= sinks_init(&shard->sinks);
	r |= pool_init(&shard->files, file_bytes(), FUZZ_EXECS);
	r |= pool_init(&shard->requests, sizeof(struct request), node->node.requests_per_shard);
	r |= functions_init(shard);
	r |= shares_init(&shard->shares, FUZZ_EXECS, FUZZ_EXECS - 1);
	r |= shares_init(&shard->ends, FUZZ_SANDBOXES, 2); /* few, so that walks wait */
	r |= tenancies_init(shard);
	r |= io_open(&options, &shard->io);
	assert(r == 0);
	shard->host = (struct flow_host){ .io = shard->io, .timers = &shard->timers };
	shard->backend = stub_open(&stub);
	node->shards[number] = shard;
}

static void tenancy_expect_idle(const struct tenancy *tenancy)
{
	for (int i = 0; i < QUOTAS; i++)
		assert(!tenancy->used[i]);
	for (int i = 0; i < TENANT_LIMITS; i++)
		assert(!tenancy->tenant->used[i]);
	assert(!tenancy->kept.count);
	assert(news_is_told(&tenancy->news));
	assert(!tenancy->clients);
}

static void shard_unmake(struct shard *shard)
{
	assert(!shard->local);
	assert(!shard->begins.count);
	assert(!shard->walks.count);
	assert(!shard->ends.count);
	assert(!shard->ends_waiting.count);
	assert(!shard->awake);
	assert(!shard->announce);
	for (uint32_t i = 0; i <= shard->node->tenant_count; i++)
		tenancy_expect_idle(&shard->tenancies[i]);
	assert(!shard->backlogged);
	assert(!shard->execs_running);
	assert(!shard->functions.all);
	assert(!shard->sinks.count);
	assert(!shard->timers.count);
	shard->backend->class->close(shard->backend);
	io_close(shard->io);
	tenancies_done(shard);
	assert(!shard->shares.count);
	shares_done(&shard->shares);
	shares_done(&shard->ends);
	assert(!pool_taken(&shard->files));
	pool_done(&shard->files);
	pool_done(&shard->requests);
	sinks_done(&shard->sinks);
	functions_done(shard);
	pool_done(&shard->sandboxes);
	timers_done(&shard->timers);
	free(shard);
}

static void policies_make(struct control *control)
{
	struct policy_mistake mistake;

	if (policies_open(&control->policies, &mistake) < 0)
		abort();
}

void node_open(struct fuzz_node *node, struct choices *choices)
{
	struct control *control = calloc(1, sizeof *control);
	struct io_options options = { .entries = 64, .owner = control };

	log_open(LOG_ERROR, "fuzz");
	(void)signal(SIGPIPE, SIG_IGN); /* as the engine: writes say EPIPE */
	*node = (struct fuzz_node){ .choices = choices };
	node->descriptors = (uint32_t)dup(0);
	(void)close((int)node->descriptors);
	node->kernel = kernel_new(choices);
	node->config = (struct config){
		.images_path = "/images",
		.shards = FUZZ_SHARDS,
		.sandboxes_max = FUZZ_SANDBOXES * FUZZ_SHARDS,
		.execs_max = FUZZ_EXECS * FUZZ_SHARDS,
		.clients_max = 16,
		.requests_max = 16,
		.creates_waiting_max = 20,
		.ttl_default_s = 86400,
		.pids_max = 100,
		.journal_bytes = 64 << 10,
		/* The second half of the visitors are the second one's, by its door. */
		.tenants = { { .name = "default",
			       .is_gateway = true,
			       .limits = { [TENANT_RECORDS] = FUZZ_RECORDS } },
			     { .name = "blue",
			       .socket_path = "/blue",
			       .limits = { [TENANT_RECORDS] = FUZZ_RECORDS } } },
		.tenant_count = 2,
	};
	options.world = kernel_world(node->kernel);
	(void)io_open(&options, &control->io);
	control->config = &node->config;
	images_init(&control->images);
	policies_make(control);
	control->choices = choices;
	node->control = control;
	node->node = (struct node){
		.config = &node->config,
		.control = control,
		.shards = node->shards,
		.shard_count = FUZZ_SHARDS,
		.sandboxes_per_shard = FUZZ_SANDBOXES,
		.execs_per_shard = FUZZ_EXECS,
		.requests_per_shard = 24,
		.policies = control->policies.ready,
		.id = 0x1122334455667788,
		.epoch = 1700000000000,
		.unenforced = DSEC_LIMIT_MEMORY,
		.network = DSEC_NETWORK_SHARED,
		.network_why = DSEC_NETWORK_WHY_DEFAULT,
	};
	if (tenants_open(&node->node) < 0)
		abort();
	for (uint32_t i = 0; i < FUZZ_SHARDS; i++)
		shard_make(node, i);
}

int node_connect(struct fuzz_node *node)
{
	struct shard *shard = node->shards[node->next_shard++ % FUZZ_SHARDS];
	struct mail *place = calloc(1, sizeof *place);
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	client_open(shard, pair[1], node->next_shard / 2 % 2, place);
	return pair[0];
}

void node_turn(struct fuzz_node *node, uint32_t loop)
{
	if (loop < FUZZ_SHARDS)
		shard_turn(node->shards[loop]);
	else
		(void)io_turn(node->control->io, 0);
}

static bool node_moves(const struct fuzz_node *node)
{
	bool moves = kernel_moved(node->kernel);

	for (uint32_t i = 0; i < FUZZ_SHARDS; i++)
		moves |= node->shards[i]->local || node->shards[i]->begins.count ||
			 node->shards[i]->walks.count;
	return moves;
}

void node_settle(struct fuzz_node *node)
{
	uint32_t turns = 0, still = 0;

	/* A choice may leave something for the next turn: still means three times nothing. */
	while (still < 3) {
		bool happened = false;

		for (uint32_t i = 0; i <= FUZZ_SHARDS; i++)
			node_turn(node, i);
		for (uint32_t i = 0; i < FUZZ_SHARDS; i++)
			happened |= stub_step(node->shards[i]->backend);
		still = happened || node_moves(node) ? 0 : still + 1;
		assert(++turns < SETTLE_TURNS_MAX); /* or the engine spins */
	}
}

void node_outlive(struct fuzz_node *node)
{
	for (int i = 0; i < 2; i++) {
		kernel_pass(node->kernel, MONTH_NS);
		node_settle(node);
	}
	for (uint32_t i = 0; i < FUZZ_SHARDS; i++)
		assert(!node->shards[i]->sandboxes_live);
}

void node_close(struct fuzz_node *node)
{
	int next;

	for (uint32_t i = 0; i < FUZZ_SHARDS; i++)
		shard_stop(node->shards[i], node->control->io);
	node_settle(node);
	assert(node->control->stopped == FUZZ_SHARDS);
	assert(!node->control->images.wants);
	for (uint32_t i = 0; i < FUZZ_SHARDS; i++)
		shard_unmake(node->shards[i]);
	tenants_close(&node->node);
	images_done(&node->control->images);
	policies_sweep(&node->control->policies);
	for (const struct policy *p = node->control->policies.policies; p; p = p->next)
		assert(!p->users);
	policies_close(&node->control->policies);
	io_close(node->control->io);
	free(node->control);
	kernel_free(node->kernel);
	next = dup(0);
	assert((uint32_t)next == node->descriptors);
	(void)close(next);
}
