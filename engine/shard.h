/*
 * A shard: one thread pinned to a CPU, one ring, its own sandboxes, execs, channels, timers and
 * launcher workers. Shards share the read-only `struct node` and nothing else; they speak by mail.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "dsec/ring.h"
#include "engine/base/flow.h"
#include "engine/base/io.h"
#include "engine/base/pool.h"
#include "engine/base/timer.h"
#include "engine/base/turns.h"
#include "engine/base/walk.h"
#include "engine/tenant/bucket.h"
#include "engine/config.h"
#include "engine/priority.h"
#include "engine/image/image.h"
#include "engine/integrity/integrity.h"
#include "engine/exec/pace.h"
#include "engine/exec/sink.h"
#include "engine/port/forward.h"
#include "engine/function/function.h"
#include "engine/tenant/share.h"

struct control;
struct channel;
struct client;
struct policy;
struct resolver;
struct server;
struct shard;
struct subscriptions;
struct tenancy;
struct tenant;
struct upstreams;

/* Of the whole engine: written before the shards start, then read-only. */
struct node {
	const struct config *config;
	struct control *control;
	struct backend_node *backend_node;
	struct guard *guard;		   /* NULL: none */
	const struct upstreams *upstreams; /* who is asked for names; NULL: nobody */
	struct shard **shards;
	uint32_t shard_count;
	uint32_t sandboxes_per_shard, execs_per_shard, requests_per_shard;
	uint64_t id;	/* the high half of every sandbox id: this node and this engine's epoch */
	uint64_t epoch; /* milliseconds since 1970 when this engine started */
	uint64_t epoch_ns; /* the same moment in CLOCK_MONOTONIC, which nobody sets */
	uint64_t features;
	uint64_t claim_keys[2];		/* by chance, for what requests ask, in short */
	uint32_t unenforced;		/* enum dsec_limit */
	uint32_t network, network_why;	/* of creates that name none: see network.h */
	struct policy *const *policies; /* the ready-made: POLICIES_READY */
	struct tenant *tenants;		/* and one more: everyone */
	uint32_t tenant_count;
	struct shared_bucket creates; /* a second */
};

/* A walk over sandboxes that are to end, some per turn; see sandbox.c. */
struct ending {
	struct mail mail;
	struct walk_turn walk;
	uint64_t client;
	uint32_t at;
};

struct shard {
	struct node *node;
	const struct config *config;
	uint32_t number;
	struct io *io;
	struct priority priority; /* of its thread */
	struct timers timers;
	struct flow_host host;
	struct flow_stats *flow_stats;
	struct backend *backend;
	struct pool sandboxes, files, requests;
	struct image_hold images[IMAGES_MAX];
	uint32_t execs_running, execs_undying, execs_max;
	struct sinks sinks;
	struct pace unheard;	  /* output that nobody hears */
	struct forwards forwards; /* ways into sandboxes from this host */
	struct functions functions;
	struct integrity integrity;
	struct server *server;	   /* of segments that are not here; NULL: none is served */
	struct resolver *resolver; /* NULL: names cannot be asked here */
	uint32_t port_waits, imports;
	struct shares shares;		     /* of execs, by client */
	struct shares ends;		     /* sandboxes that end, by the client that wants it */
	struct turns ends_waiting;	     /* walks, until one more of their client's may end */
	struct tenancy *tenancies;	     /* one per tenant, and everyone's */
	struct subscriptions *subscriptions; /* of the node, on the shard that keeps them */
	struct client *clients;
	uint64_t client_sequence;
	uint32_t sandboxes_live, quarantined, clients_live;
	/* channels whose rings are looked at every turn, and those with events to announce */
	struct channel *awake, *announce;
	uint32_t backlogged; /* channels that wait for room in the client's memory */
	uint64_t id_sequence;
	uint32_t rotation;		  /* where the next single create goes */
	struct mail *local, **local_last; /* to itself */
	struct turns begins;		  /* beginnings of requests: some per turn */
	struct turns walks;		  /* pieces of long walks: one per turn */
	pthread_t thread;
	int start_error;
	uint64_t slow_seen; /* callbacks over 1 ms, logged so far */
	bool stopping, draining, stopped, ended;
	bool gave_up;		   /* its time to stop passed: what is left is left */
	uint64_t destroyed_before; /* of all tenants, when it was told to stop */
	/* What came of it, for the control thread once it has stopped. */
	uint64_t stop_destroyed, stop_left;
	struct ending ending; /* of all, when the engine stops */
	struct mail stop_mail, give_up_mail, stopped_mail, end_mail;
};

/* Starts the thread and returns when its loop can take mail: 0 or -errno. */
int shard_start(struct node *node, uint32_t number, struct shard **ret);
/*
 * From the control thread's loop, in two steps, because shards send each other mail to the last:
 * destroy and give back everything, after which control_shard_stopped() is told; then, when every
 * shard has stopped, end the thread.
 */
void shard_stop(struct shard *shard, struct io *from);
void shard_end(struct shard *shard, struct io *from);
/* Its time to stop passed: it says what is left, and has stopped. */
void shard_give_up(struct shard *shard, struct io *from);
/* After the thread ended. */
void shard_free(struct shard *shard);
/* One turn of its loop. */
void shard_turn(struct shard *shard);
/* Mail to any shard, this one too; delivered by its loop. */
void shard_send(struct shard *from, struct shard *to, struct mail *mail);
/*
 * Mail to itself that begins a client's part of a request, or cancels it: each client's in order,
 * clients in turn, and behind other mail when those before it took long. So nothing else may count
 * on one that was sent before it.
 */
void shard_begin(struct shard *shard, struct walk_turn *walk, uint64_t client);
/*
 * Mail to itself that is a piece of a client's long work, at most a few hundred microseconds: of
 * these only one is delivered per turn, so that many of them delay nobody, and clients take turns.
 */
void shard_walk(struct shard *shard, struct walk_turn *walk, uint64_t client);
/* A sandbox, channel or request of this shard went: the shard may be done stopping. */
void shard_check_stopped(struct shard *shard);
