/*
 * The pool of network namespaces of one shard. Called by the container backend. Must hold: one
 * that was taken is taken again only after a worker proved it clean; one that is dropped counts
 * until the kernel has torn it down, which a witness tells: a descriptor of one of its settings,
 * which does not keep it alive and can be read until then; one of a group is nobody else's. Waiters
 * are served in order.
 */
#include "backends/container/network.h"

#include <errno.h>
#include <stdlib.h>

#include "backends/container/container.h"
#include "bpf/guard.h"
#include "engine/base/cleanup.h"

/*
 * A proof comes late enough for what the kernel sends by itself when a group was joined or left: up
 * to three ticks, of 10 ms at most.
 */
enum {
	PROVE_FIRST_NS = 50 * 1000000,
	LOOK_NS = 5 * 1000000,
	PROVE_AGAIN_NS = 10 * 1000000,
	DROP_AGAIN_NS = 100 * 1000000
};

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

/*
 * Blocks of addresses of namespaces with a way out: a route of the router's leads to each. Block N
 * of the host is shard N % shards' own. -EBUSY: they are all taken.
 */
static int block_take(struct networks *networks, struct network *network)
{
	const struct backend_options *options = &networks->owner->options;
	const uint32_t shards = node_shards(options->node);
	const uint32_t all = GUARD_SHARED_ADDRESSES / GUARD_SHARED_BLOCK;

	for (uint32_t i = 0, block = options->shard; block < all; i++, block += shards) {
		if (networks->blocks & 1ull << i)
			continue;
		networks->blocks |= 1ull << i;
		network->first_address = block * GUARD_SHARED_BLOCK;
		return 0;
	}
	return -EBUSY;
}

static void block_give(struct network *network)
{
	const uint32_t shards = node_shards(network->in->owner->options.node);

	if (network->kind == BOX_NETWORK_SHARED && network->group.leads_out)
		network->in->blocks &=
			~(1ull << network->first_address / GUARD_SHARED_BLOCK / shards);
}

static void network_move(struct network *network, enum network_state state)
{
	if (state == NETWORK_EMPTY)
		block_give(network);
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
	for (int i = 0; i < NETWORK_KINDS; i++)
		networks->queues[i].last = &networks->queues[i].first;
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

static bool network_leads_out(const struct network *network)
{
	return network->kind == BOX_NETWORK_EGRESS ||
	       (network->kind == BOX_NETWORK_SHARED && network->group.leads_out);
}

static void network_ask(struct network *network, enum launch_op op, enum team_class class)
{
	network->asking = true;
	network->call.request = (struct launch_request){ .op = op,
							 .network = network->number,
							 .limit_ms = SPAWN_LIMIT_MS };
	if (network->kind == BOX_NETWORK_SHARED)
		network->call.request.flags |= LAUNCH_SHARED;
	if (network_leads_out(network)) {
		network->call.request.flags |= LAUNCH_EGRESS;
		network->call.request.shared_address = network->first_address;
		node_egress_fill(network->in->owner->options.node, &network->call.request);
	}
	network->call.class = class;
	network->call.takes_descriptor = op == LAUNCH_NETWORK_DROP;
	network->call.done = network_replied;
	team_call(&network->in->owner->team, &network->call);
}

static void wish_end(struct networks *networks, struct network_wish *wish, int error)
{
	if (!wish)
		return;
	(void)network_withdraw(networks, wish);
	networks->refused += error != 0;
	wish->ready(wish, error);
}

static bool group_is(const struct box_group *a, const struct box_group *b)
{
	return a->tenant == b->tenant && a->job == b->job && a->leads_out == b->leads_out;
}

static struct network_wish *group_wish(const struct networks *networks,
				       const struct box_group *group)
{
	struct network_wish *wish = networks->queues[BOX_NETWORK_SHARED].first;

	while (wish && !group_is(&wish->group, group))
		wish = wish->next;
	return wish;
}

/* All that wait for it, the same way. */
static void group_made(struct network *network, int error)
{
	struct network_wish *wish;

	if (!error) {
		network_move(network, NETWORK_SHARED);
		network->users = 0;
		network->at_ns = io_now_ns(network->in->owner->options.host->io);
	}
	while ((wish = group_wish(network->in, &network->group))) {
		wish->network = error ? NULL : network;
		network->users += !error;
		wish_end(network->in, wish, error);
	}
}

static void network_made(struct network *network, const struct launch_reply *reply)
{
	struct networks *networks = network->in;
	struct network_wish *wish = network->wish;
	bool made = reply && !reply->error;

	network->wish = NULL;
	networks->made += made;
	if (made && network->kind == BOX_NETWORK_SHARED) {
		group_made(network, 0);
	} else if (made && wish) {
		network_move(network, NETWORK_TAKEN);
		wish->making = NULL;
		wish->network = network;
		wish_end(networks, wish, 0);
	} else if (made && network->kind == BOX_NETWORK_PRIVATE) {
		network_move(network, NETWORK_CLEAN);
	} else {
		/* A worker that was lost with it may have got to any point. */
		network_move(network, NETWORK_DIRTY);
		if (wish)
			wish->making = NULL; /* asked again, where it was a worker's loss */
		if (reply && reply->error && network->kind == BOX_NETWORK_SHARED)
			group_made(network, -reply->error);
		else if (reply && reply->error && (wish || network->wanted))
			wish_end(networks,
				 wish ? wish : networks->queues[BOX_NETWORK_PRIVATE].first,
				 -reply->error);
	}
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

static void wish_add(struct networks *networks, struct network_wish *wish)
{
	struct network_queue *queue = &networks->queues[wish->kind];

	wish->until_ns = io_now_ns(networks->owner->options.host->io);
	if (queue->count < NETWORK_WAITERS_MAX)
		wish->until_ns += NETWORK_WAIT_MS * 1000000ull;
	wish->waiting = true;
	wish->making = NULL;
	wish->next = NULL;
	*queue->last = wish;
	queue->last = &wish->next;
	queue->count++;
}

static struct network *group_network(struct networks *networks, const struct box_group *group,
				     enum network_state state)
{
	struct network *head = &networks->lists[state];

	for (struct network *network = head->next; network != head; network = network->next)
		if (network->kind == BOX_NETWORK_SHARED && group_is(&network->group, group))
			return network;
	return NULL;
}

struct network *network_take(struct networks *networks, struct network_wish *wish)
{
	struct network *network = NULL;

	if (wish->kind == BOX_NETWORK_SHARED)
		network = group_network(networks, &wish->group, NETWORK_SHARED);
	else if (wish->kind == BOX_NETWORK_PRIVATE && !networks->queues[wish->kind].first)
		network = network_first(networks, NETWORK_CLEAN);
	networks->used |= wish->kind == BOX_NETWORK_PRIVATE;
	wish->network = network;
	if (!network)
		wish_add(networks, wish);
	else if (wish->kind == BOX_NETWORK_SHARED)
		network->users++;
	else
		network_move(network, NETWORK_TAKEN);
	networks_work(networks);
	return wish->network;
}

bool network_withdraw(struct networks *networks, struct network_wish *wish)
{
	struct network_queue *queue = &networks->queues[wish->kind];
	struct network_wish **at = &queue->first;

	if (!wish->waiting)
		return false;
	while (*at != wish)
		at = &(*at)->next;
	*at = wish->next;
	if (!wish->next)
		queue->last = at;
	wish->waiting = false;
	queue->count--;
	if (wish->making)
		wish->making->wish = NULL; /* it is dropped when it was made */
	wish->making = NULL;
	return true;
}

static void wishes_expire(struct networks *networks, struct network_queue *queue, uint64_t now_ns)
{
	struct network_wish *wish = queue->first;

	while (wish) {
		bool late = wish->until_ns <= now_ns;
		struct network_wish *next = wish->next;

		if (late)
			wish_end(networks, wish, -EAGAIN);
		wish = late ? queue->first : next; /* whatever that did to the list */
	}
}

/* From the timer alone: never from inside network_take(). */
static void wishes_serve(struct networks *networks, uint64_t now_ns)
{
	struct network_queue *queue = &networks->queues[BOX_NETWORK_PRIVATE];
	struct network *network;

	while (queue->first && (network = network_first(networks, NETWORK_CLEAN))) {
		network_move(network, NETWORK_TAKEN);
		queue->first->network = network;
		wish_end(networks, queue->first, 0);
	}
	for (int i = 0; i < NETWORK_KINDS; i++)
		wishes_expire(networks, &networks->queues[i], now_ns);
}

void network_give(struct networks *networks, struct network *network)
{
	const uint64_t now_ns = io_now_ns(networks->owner->options.host->io);

	if (network->kind == BOX_NETWORK_SHARED) {
		network->users--;
		network->at_ns = now_ns;
	} else if (network->kind == BOX_NETWORK_EGRESS) {
		networks->discarded++;
		network_move(network, NETWORK_DIRTY);
	} else {
		network->proofs = 0;
		network->at_ns = now_ns + PROVE_FIRST_NS;
		network_move(network, NETWORK_PROVING);
	}
	networks_work(networks);
}

/* ---- work in the background ---- */

static uint32_t networks_backlog(const struct networks *networks)
{
	return networks->counts[NETWORK_DIRTY] + networks->counts[NETWORK_ENDING];
}

static bool networks_may_make(const struct networks *networks)
{
	return !networks->draining && networks->counts[NETWORK_MAKING] < NETWORKS_MAKING_MAX &&
	       networks_backlog(networks) < NETWORKS_BACKLOG_MAX;
}

static bool networks_want_more(const struct networks *networks)
{
	uint32_t coming = networks->counts[NETWORK_CLEAN] + networks->counts[NETWORK_MAKING];

	return networks->used && networks_may_make(networks) &&
	       coming < networks->queues[BOX_NETWORK_PRIVATE].count + NETWORKS_READY;
}

static void networks_make(struct networks *networks)
{
	struct network *network;

	while (networks_want_more(networks) && (network = network_first(networks, NETWORK_EMPTY))) {
		network->wanted =
			networks->counts[NETWORK_CLEAN] + networks->counts[NETWORK_MAKING] <
			networks->queues[BOX_NETWORK_PRIVATE].count;
		network->kind = BOX_NETWORK_PRIVATE;
		network_move(network, NETWORK_MAKING);
		network_ask(network, LAUNCH_NETWORK_MAKE,
			    network->wanted ? TEAM_START : TEAM_PREPARE);
	}
}

/* One for each wish. Its number decides its addresses. */
static void networks_make_egress(struct networks *networks)
{
	struct network *network;

	struct network_wish *wish = networks->queues[BOX_NETWORK_EGRESS].first;

	for (; wish; wish = wish->next) {
		if (wish->making)
			continue;
		if (!networks_may_make(networks) ||
		    !(network = network_first(networks, NETWORK_EMPTY)))
			return;
		if (!node_egress_address(networks->owner->options.node, network->number)) {
			wish->until_ns = 0; /* the range is too small: refused at the next look */
			continue;
		}
		network->wanted = false;
		network->kind = BOX_NETWORK_EGRESS;
		network->wish = wish;
		wish->making = network;
		network_move(network, NETWORK_MAKING);
		network_ask(network, LAUNCH_NETWORK_MAKE, TEAM_START);
	}
}

/* Has it got what a way out takes; else who wants it is refused at the next look. */
static bool shared_leads_out(struct networks *networks, struct network *network,
			     struct network_wish *wish)
{
	const bool has_room = networks->owner->slots.count < GUARD_SHARED_BLOCK &&
			      node_egress_address(networks->owner->options.node, network->number) &&
			      block_take(networks, network) == 0;

	if (!has_room)
		wish->until_ns = 0;
	return has_room;
}

/* One for each group that waits. */
static void networks_make_shared(struct networks *networks)
{
	struct network_wish *wish = networks->queues[BOX_NETWORK_SHARED].first;
	struct network *network;

	for (; wish; wish = wish->next) {
		if (group_network(networks, &wish->group, NETWORK_MAKING))
			continue;
		if (!networks_may_make(networks) ||
		    !(network = network_first(networks, NETWORK_EMPTY)))
			return;
		network->first_address = 0;
		if (wish->group.leads_out && !shared_leads_out(networks, network, wish))
			continue;
		network->wanted = false;
		network->kind = BOX_NETWORK_SHARED;
		network->group = wish->group;
		network_move(network, NETWORK_MAKING);
		network_ask(network, LAUNCH_NETWORK_MAKE, TEAM_START);
	}
}

/* Those of groups that left go; when to look again, UINT64_MAX: not. */
static uint64_t networks_leave(struct networks *networks, uint64_t now_ns)
{
	struct network *head = &networks->lists[NETWORK_SHARED], *next;
	uint64_t first_ns = UINT64_MAX;

	for (struct network *network = head->next; network != head; network = next) {
		uint64_t end_ns = network->at_ns + NETWORK_IDLE_MS * 1000000ull;

		next = network->next;
		if (network->users)
			continue;
		if (networks->draining || end_ns <= now_ns) {
			networks->discarded++;
			network_move(network, NETWORK_DIRTY);
		} else if (end_ns < first_ns) {
			first_ns = end_ns;
		}
	}
	return first_ns;
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
	const uint64_t now_ns = io_now_ns(host->io);
	uint64_t at_ns = networks_leave(networks, now_ns);
	bool looks = false, late = false;

	networks_prove(networks, now_ns);
	networks_end(networks, now_ns);
	networks_make_shared(networks);
	networks_make_egress(networks);
	networks_make(networks);
	for (int i = 0; i < NETWORK_KINDS; i++) {
		looks |= networks->queues[i].first != NULL;
		late |= networks->queues[i].count > NETWORK_WAITERS_MAX;
	}
	if (looks || networks->counts[NETWORK_PROVING] || networks_backlog(networks))
		at_ns = now_ns + LOOK_NS;
	if (late ||
	    (networks->queues[BOX_NETWORK_PRIVATE].first && networks->counts[NETWORK_CLEAN]))
		at_ns = now_ns;
	/* There is room: one timer per pool. */
	if (at_ns != UINT64_MAX)
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
