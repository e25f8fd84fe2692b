/*
 * The control thread's state: shared by control.c (its loop) and control_open.c (start and end).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/signalfd.h>

#include "engine/config_dns.h"
#include "engine/control.h"
#include "engine/image/image.h"
#include "engine/image/run.h"
#include "engine/policy/policies.h"
#include "engine/policy/policy_files.h"
#include "engine/shard.h"

struct guard;
struct worker_pid;

/* A socket that clients come by: the engine's, or a tenant's own. */
struct door {
	struct control *control;
	struct io_op accept;
	uint32_t tenant;
	uint32_t clients; /* of clients_max, see door_clients_max() */
	int listen_fd;	  /* -1: there is none */
};

struct control {
	struct node node;
	const struct config *config;
	struct io *io;
	struct guard *guard;
	struct image_table images;
	struct image_runs image_runs;
	struct policy_table policies;
	struct serve *serve;		 /* NULL: nothing is served */
	struct policy_enforcer enforcer; /* of those */
	struct upstreams upstreams;	 /* node.upstreams, where names can be asked */
	struct policy_files policy_files;
	const char *tenant_names[TENANTS_MAX];
	bool stopping, gave_up;
	uint64_t stop_ns;	    /* when it was told to stop */
	struct worker_pid *workers; /* not reaped yet */
	struct mail *missing;	    /* lost workers that were not replaced yet */
	uint32_t shards_stopped, next_shard;
	uint32_t clients; /* connected, of all shards: at most clients_max */
	uint32_t restarts;
	uint64_t restart_s;
	uint64_t refreshed_ns; /* when the images' files and old policies were looked at */
	int signal_fd, cgroup_fd;
	struct door doors[TENANTS_MAX];
	struct io_op signal, lifeline;
	struct signalfd_siginfo signal_info;
	char lifeline_byte;
};

int control_launcher_start(struct control *control, struct shard *shard);
/* Tell the shards to stop. */
void control_shards_stop(struct control *control);
/* One turn of the loop while they do, within limits. */
int control_stop_turn(struct control *control, uint64_t until_ns);
/* At the end, when the shards have ended: waits until every worker was reaped, within limits. */
void control_workers_end(struct control *control);
/* Where an operator has any. It said why not, and then those that were read before stay. */
int control_read_services(struct control *control);
