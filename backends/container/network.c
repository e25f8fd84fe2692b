/*
 * The pool of network namespaces of one shard. Called by the container backend. Must hold: one
 * that was taken is taken again only after a worker proved it clean; one that is dropped counts
 * until the kernel has torn it down, which a witness tells: a descriptor of one of its settings,
 * which does not keep it alive and can be read until then. Waiters are served in order.
 */
#include "backends/container/network.h"

#include <errno.h>
#include <stdlib.h>

#include "backends/container/container.h"
#include "engine/base/cleanup.h"

enum { LOOK_NS = 5 * 1000000, PROVE_AGAIN_NS = 10 * 1000000, DROP_AGAIN_NS = 100 * 1000000 };

static void networks_work(struct networks *networks);

/* ---- lists ---- */

static void network_link(struct network *network, enum network_state state)
{
	struct network *head = &network->in->lists[state];

	network->state = state;
	network->next = head->next;
	network->previous = head;
	head->next->previous = network;
	head->next = network;
	network->in->counts[state]++;
}

static void network_move(struct network *network, enum network_state state)
{
	network->previous->next = network->next;
	network->next->previous = network->previous;
	network->in->counts[network->state]--;
	network_link(network, state);
}

static struct network *network_first(struct networks *networks, enum network_state state)
{
	struct network *head = &networks->lists[state];

	return head->next == head ? NULL : head->next;
}

int networks_init(struct networks *networks, struct containers *owner, uint32_t first,
		  uint32_t count)
{
	*networks = (struct networks){ .owner = owner, .count = count };
	networks->waiting_last = &networks->waiting;
	networks->all = calloc(count, sizeof *networks->all);
	if (!networks->all)
		return -ENOMEM;
	for (uint32_t i = 0; i < NETWORK_STATES; i++)
		networks->lists[i].next = networks->lists[i].previous = &networks->lists[i];
	for (uint32_t i = count; i > 0; i--) {
		struct network *network = &networks->all[i - 1];

		network->in = networks;
		network->number = first + i - 1;
		network->witness_fd = -1;
		network_link(network, NETWORK_EMPTY);
	}
	return 0;
}

void networks_done(struct networks *networks)
{
	for (uint32_t i = 0; networks->all && i < networks->count; i++)
		cleanup_close(&networks->all[i].witness_fd);
	free(networks->all);
	networks->all = NULL;
}

uint32_t networks_made(const struct networks *networks)
{
	return networks->all ? networks->count - networks->counts[NETWORK_EMPTY] : 0;
}

/* ---- calls ---- */

static void network_replied(struct launch_call *call, const struct launch_reply *reply);

static void network_ask(struct network *network, enum launch_op op, enum team_class class)
{
	network->asking = true;
	network->call.request = (struct launch_request){ .op = op,
							 .network = network->number,
							 .limit_ms = SPAWN_LIMIT_MS };
	network->call.class = class;
	network->call.takes_descriptor = op == LAUNCH_NETWORK_DROP;
	network->call.done = network_replied;
	team_call(&network->in->owner->team, &network->call);
}

static void wishes_fail(struct networks *networks, int error)
{
	struct network_wish *wish = networks->waiting;

	if (!wish)
		return;
	(void)network_withdraw(networks, wish);
	networks->refused++;
	wish->ready(wish, error);
}

static void network_made(struct network *network, const struct launch_reply *reply)
{
	struct networks *networks = network->in;

	if (reply && !reply->error) {
		networks->made++;
		network_move(network, NETWORK_CLEAN);
		return;
	}
	/* A worker that was lost with it may have got to any point. */
	network_move(network, NETWORK_DIRTY);
	if (reply && network->wanted)
		wishes_fail(networks, -reply->error);
}

static void network_proven(struct network *network, const struct launch_reply *reply)
{
	struct networks *networks = network->in;

	if (reply && !reply->error && reply->flags & LAUNCH_CLEAN &&
	    networks->counts[NETWORK_CLEAN] < NETWORKS_CLEAN_MAX && !networks->draining) {
		networks->reused++;
		network_move(network, NETWORK_CLEAN);
	} else if (reply && reply->flags & LAUNCH_BUSY && network->proofs < NETWORK_PROOFS_MAX) {
		network->at_ns = io_now_ns(networks->owner->options.host->io) +
				 ((uint64_t)PROVE_AGAIN_NS << network->proofs);
	} else {
		networks->discarded++;
		network_move(network, NETWORK_DIRTY);
	}
}

static void network_dropped(struct network *network, const struct launch_reply *reply)
{
	const uint64_t now_ns = io_now_ns(network->in->owner->options.host->io);

	network->witness_fd = take_fd(&network->call.reply_fd);
	if (!reply || (reply->error && !network->in->draining))
		network->at_ns = now_ns + DROP_AGAIN_NS;
	else if (network->witness_fd >= 0)
		network->at_ns = now_ns + NETWORK_ENDING_MS * 1000000ull;
	else
		network_move(network, NETWORK_EMPTY); /* there was none, or the vault goes too */
}

static void network_replied(struct launch_call *call, const struct launch_reply *reply)
{
	struct network *network = container_of(call, struct network, call);
	struct networks *networks = network->in;

	network->asking = false;
	if (call->request.op == LAUNCH_NETWORK_MAKE)
		network_made(network, reply);
	else if (call->request.op == LAUNCH_NETWORK_PROVE)
		network_proven(network, reply);
	else
		network_dropped(network, reply);
	networks_work(networks);
}

/* ---- wishes ---- */

static bool wish_is_first(const struct networks *networks, const struct network_wish *wish)
{
	return !networks->waiting || networks->waiting == wish;
}

struct network *network_take(struct networks *networks, struct network_wish *wish)
{
	struct network *network = network_first(networks, NETWORK_CLEAN);

	networks->used = true;
	wish->network = NULL;
	if (network && wish_is_first(networks, wish)) {
		network_move(network, NETWORK_TAKEN);
		wish->network = network;
	} else {
		wish->until_ns = io_now_ns(networks->owner->options.host->io);
		if (networks->waiting_count < NETWORK_WAITERS_MAX)
			wish->until_ns += NETWORK_WAIT_MS * 1000000ull;
		wish->waiting = true;
		wish->next = NULL;
		*networks->waiting_last = wish;
		networks->waiting_last = &wish->next;
		networks->waiting_count++;
	}
	networks_work(networks);
	return wish->network;
}

bool network_withdraw(struct networks *networks, struct network_wish *wish)
{
	struct network_wish **at = &networks->waiting;

	if (!wish->waiting)
		return false;
	while (*at != wish)
		at = &(*at)->next;
	*at = wish->next;
	if (!wish->next)
		networks->waiting_last = at;
	wish->waiting = false;
	networks->waiting_count--;
	return true;
}

/* From the timer alone: never from inside network_take(). */
static void wishes_serve(struct networks *networks, uint64_t now_ns)
{
	struct network *network;

	while (networks->waiting && (network = network_first(networks, NETWORK_CLEAN))) {
		struct network_wish *wish = networks->waiting;

		(void)network_withdraw(networks, wish);
		network_move(network, NETWORK_TAKEN);
		wish->network = network;
		wish->ready(wish, 0);
	}
	for (struct network_wish *wish = networks->waiting, *next; wish; wish = next) {
		next = wish->next;
		if (wish->until_ns > now_ns)
			continue;
		(void)network_withdraw(networks, wish);
		networks->refused++;
		wish->ready(wish, -EAGAIN);
		next = networks->waiting; /* whatever that did to the list */
	}
}

void network_give(struct networks *networks, struct network *network)
{
	network->proofs = 0;
	network->at_ns = 0;
	network_move(network, NETWORK_PROVING);
	networks_work(networks);
}

/* ---- work in the background ---- */

static uint32_t networks_backlog(const struct networks *networks)
{
	return networks->counts[NETWORK_DIRTY] + networks->counts[NETWORK_ENDING];
}

static bool networks_want_more(const struct networks *networks)
{
	uint32_t coming = networks->counts[NETWORK_CLEAN] + networks->counts[NETWORK_MAKING];

	return networks->used && !networks->draining &&
	       networks->counts[NETWORK_MAKING] < NETWORKS_MAKING_MAX &&
	       networks_backlog(networks) < NETWORKS_BACKLOG_MAX &&
	       coming < networks->waiting_count + NETWORKS_READY;
}

static void networks_make(struct networks *networks)
{
	struct network *network;

	while (networks_want_more(networks) && (network = network_first(networks, NETWORK_EMPTY))) {
		network->wanted =
			networks->counts[NETWORK_CLEAN] + networks->counts[NETWORK_MAKING] <
			networks->waiting_count;
		network_move(network, NETWORK_MAKING);
		network_ask(network, LAUNCH_NETWORK_MAKE,
			    network->wanted ? TEAM_START : TEAM_PREPARE);
	}
}

static void networks_prove(struct networks *networks, uint64_t now_ns)
{
	struct network *head = &networks->lists[NETWORK_PROVING], *next;

	for (struct network *network = head->next; network != head; network = next) {
		next = network->next;
		if (network->asking)
			continue;
		if (networks->draining) {
			network_move(network, NETWORK_DIRTY);
		} else if (network->at_ns <= now_ns) {
			network->proofs++;
			network_ask(network, LAUNCH_NETWORK_PROVE, TEAM_PREPARE);
		}
	}
}

static void networks_end(struct networks *networks, uint64_t now_ns)
{
	struct network *head = &networks->lists[NETWORK_ENDING], *network, *next;
	char text[16];

	for (network = head->next; network != head; network = next) {
		next = network->next;
		if (network->asking || (network->at_ns > now_ns && !networks->draining &&
					(network->witness_fd < 0 ||
					 pread(network->witness_fd, text, sizeof text, 0) >= 0)))
			continue;
		if (network->witness_fd < 0) {
			network_ask(network, LAUNCH_NETWORK_DROP, TEAM_PREPARE);
			continue;
		}
		cleanup_close(&network->witness_fd);
		network->witness_fd = -1;
		network_move(network, NETWORK_EMPTY);
	}
	while ((networks->counts[NETWORK_ENDING] < NETWORKS_ENDING_MAX || networks->draining) &&
	       (network = network_first(networks, NETWORK_DIRTY))) {
		network_move(network, NETWORK_ENDING);
		network_ask(network, LAUNCH_NETWORK_DROP, TEAM_PREPARE);
	}
}

static void networks_look(struct timer *timer)
{
	struct networks *networks = container_of(timer, struct networks, timer);

	wishes_serve(networks, io_now_ns(networks->owner->options.host->io));
	networks_work(networks);
}

/* A timer runs while something is to be looked at, and at once while somebody can be served. */
static void networks_work(struct networks *networks)
{
	const struct flow_host *host = networks->owner->options.host;
	uint64_t now_ns = io_now_ns(host->io), at_ns = now_ns + LOOK_NS;

	networks_prove(networks, now_ns);
	networks_end(networks, now_ns);
	networks_make(networks);
	if (networks->waiting &&
	    (networks->counts[NETWORK_CLEAN] || networks->waiting_count > NETWORK_WAITERS_MAX))
		at_ns = now_ns;
	/* There is room: one timer per pool. */
	if (networks->waiting || networks->counts[NETWORK_PROVING] || networks_backlog(networks))
		(void)timer_set(host->timers, &networks->timer, at_ns);
	networks->timer.expired = networks_look;
	if (networks->draining && !networks_made(networks) && networks->owner->drained)
		prepare_drain(networks->owner);
}

void networks_drain(struct networks *networks)
{
	struct network *network;

	if (networks->draining || !networks->all)
		return;
	networks->draining = true;
	while ((network = network_first(networks, NETWORK_CLEAN)))
		network_move(network, NETWORK_DIRTY);
	networks_work(networks);
}
