/*
 * Ports of boxes of the container backend. Called by the engine through the class. While a worker
 * is asked PID 1 is held: else the network could be another sandbox's by then.
 */
#include <errno.h>

#include "backends/container/container.h"
#include "engine/base/cleanup.h"

static void port_replied(struct launch_call *call, const struct launch_reply *reply)
{
	struct port_call *ask = container_of(call, struct port_call, call);
	struct box_port *port = ask->port;
	struct container *box = container_of_box(port->box);

	port->fd = take_fd(&call->reply_fd);
	port->is_ipv6 = reply && reply->flags & LAUNCH_IPV6;
	pool_put(&containers_of(box->box.backend)->ports, ask);
	port->done(port, !reply ? -EPIPE : -reply->error);
	child_release(&box->init);
}

int container_port_ask(struct box_port *port)
{
	struct container *box = container_of_box(port->box);
	struct containers *c = containers_of(box->box.backend);
	struct port_call *ask;

	if (!box->network)
		return -EOPNOTSUPP;
	if (!child_is_alive(&box->init))
		return -EAGAIN;
	ask = pool_take(&c->ports);
	if (!ask)
		return -EAGAIN;
	ask->port = port;
	child_hold(&box->init);
	ask->call.request = (struct launch_request){
		.op = port->connect ? LAUNCH_PORT_CONNECT : LAUNCH_PORT_LOOK,
		.network = box->network->number,
		.port = port->port,
		.limit_ms = SPAWN_LIMIT_MS,
	};
	if (box->box.spec.network == BOX_NETWORK_SHARED) {
		ask->call.request.flags = LAUNCH_SHARED;
		ask->call.request.shared_address = box->shared_address;
	}
	ask->call.class = TEAM_START;
	ask->call.takes_descriptor = port->connect;
	ask->call.done = port_replied;
	team_call(&c->team, &ask->call);
	return 0;
}
