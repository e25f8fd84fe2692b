/*
 * Flows are cut on the control thread: it may take milliseconds. Called by phases. Must hold: the
 * namespace is open until it was done, so that it is nobody else's.
 */
#include "engine/flows.h"

#include <errno.h>

#include "bpf/guard_flows.h"
#include "engine/base/cleanup.h"
#include "engine/control.h"
#include "engine/shard.h"

static void cut_came_home(struct mail *mail, void *owner)
{
	struct flows_cut *cut = container_of(mail, struct flows_cut, mail);

	(void)owner; /* cut->shard */
	cut->done(cut, cut->error);
}

static void cut_arrived(struct mail *mail, void *owner)
{
	struct flows_cut *cut = container_of(mail, struct flows_cut, mail);
	struct control *control = owner;

	const struct guard_flows flows = { .namespace_fd = cut->sockets.namespace_fd,
					   .address = cut->sockets.shared_address,
					   .cgroup_id = cut->sockets.cgroup_id };

	cut->error = cut->shard->node->guard ? guard_flows_cut(&flows, &cut->count) : -EOPNOTSUPP;
	cleanup_close(&cut->sockets.namespace_fd);
	cut->mail.deliver = cut_came_home;
	mail_send(control_io(control), cut->shard->io, &cut->mail);
}

void flows_cut(struct flows_cut *cut)
{
	cut->mail.deliver = cut_arrived;
	mail_send(cut->shard->io, control_io(cut->shard->node->control), &cut->mail);
}
