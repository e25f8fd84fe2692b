/*
 * The container backend of one shard: what its files share. Boxes are built by the flow in
 * container.c, runs by run.c, slots are prepared by prepare.c.
 */
#pragma once

#include "backends/backend.h"
#include "backends/container/children.h"
#include "backends/container/crews.h"
#include "backends/container/governor.h"
#include "backends/container/network.h"
#include "backends/container/slot.h"
#include "backends/container/team.h"
#include "engine/base/cleanup.h"
#include "engine/base/pool.h"

enum {
	SPAWN_LIMIT_MS = 2000,
	RUN_START_LIMIT_MS = 2000,
	KILL_LIMIT_MS = 2000,
	FREEZE_LIMIT_MS = 1000,
};

struct containers {
	struct backend backend;
	struct backend_options options;
	struct guard *guard;
	struct guard_exits *exits;
	struct children children;
	struct team team;
	struct crews crews;
	struct slots slots;
	struct networks networks;
	struct pool boxes, runs, preparations, ports;
	uint64_t built, reused;
	void (*drained)(void *owner);
};

struct container {
	struct box box;
	struct launch_call call;
	struct child init; /* PID 1 */
	struct slot *slot;
	struct network *network; /* NULL: `none`, or not yet */
	uint32_t shared_address; /* BOX_NETWORK_SHARED: whose, see struct guard_shared */
	struct network_wish network_wish;
	struct io_op upper_op; /* its slot is given back */
	char upper_path[SLOT_PATH_BYTES];
	uint64_t root_device;	/* st_dev of its root; slots that are rebuilt get another */
	uint64_t cpu_before_us; /* of the cgroup: what other sandboxes used */
	uint64_t ooms_before;	/* the same, of what their limits killed */
	bool rebuild, lost, killing, up;
	int spawn_error;
	uint64_t leaves_busy; /* bit per leaf with a run */
	struct launch_call usage_call;
	struct box_usage *usage;
};

struct container_run {
	struct run run;
	struct launch_call call, kill_call, oom_call, finish_call;
	struct run_end *end;
	struct io_op upper_op; /* with `end` */
	char upper_path[SLOT_PATH_BYTES];
	struct child main;
	const struct run_spec *spec;
	struct launch_limit limits[RUN_LIMITS_MAX];
	uint32_t leaf;
	bool lost, terminated, kill_wanted, emptied, ended, oom_asked;
	int status;
	uint64_t ooms_before; /* what the box's limit had killed when it began */
};

/* A slot being prepared: see prepare.c. */
struct preparation {
	struct launch_call call;
	struct containers *in;
	struct slot *slot;
};

/* A question about a port: see container_port_ask(). */
struct port_call {
	struct launch_call call;
	struct box_port *port;
};

extern const struct backend_class container_class;

/* Where `struct backend_node` keeps what shards need; see node.c. */
int node_vault_fd(const struct backend_node *node);
/* Where sandboxes ask for names, in host byte order; 0: nowhere. */
uint32_t node_resolver_address(const struct backend_node *node);
uint32_t node_shards(const struct backend_node *node);
/* Of the four addresses of network N the first, of each family; 0, false: there are none. */
uint32_t node_egress_address(const struct backend_node *node, uint32_t network);
bool node_egress_address6(const struct backend_node *node, uint32_t network, uint8_t ret[16]);
/* Both, of the request's network. */
void node_egress_fill(const struct backend_node *node, struct launch_request *request);
struct guard *node_guard(const struct backend_node *node);
struct governor *node_governor(const struct backend_node *node); /* NULL: there is none */
uint32_t node_slots_per_shard(const struct backend_node *node);
uint32_t node_uid_base(const struct backend_node *node, uint32_t slot);
const struct limits_host *node_limits(const struct backend_node *node);

static inline struct containers *containers_of(struct backend *b)
{
	return container_of(b, struct containers, backend);
}

static inline struct container *container_of_box(struct box *box)
{
	return container_of(box, struct container, box);
}

/* limits.c: what this host can enforce, and a box's limits as a request to a worker. */
struct limits_host {
	uint32_t unenforced;	     /* enum box_limit */
	bool has_pids;		     /* the controller; else RLIMIT_NPROC does it */
	uint32_t io_major, io_minor; /* the disk below the images; 0:0: none that can be limited */
};
struct limits_host limits_probe(int shard_cgroup_fd, const char *images_path);
/* Bits of enum box_limit in which two differ. */
uint32_t limits_changed(const struct box_limits *from, const struct box_limits *to);
/* RLIMIT_NPROC of the slot's range of ids for this box. */
uint32_t limits_processes_max(const struct containers *c, const struct box_limits *limits);

/* Its memory limit is enforced: what that kills is told from other ends. */
static inline bool box_counts_ooms(const struct box *box)
{
	const struct containers *c = container_of(box->backend, const struct containers, backend);

	return box->spec.limits.memory_bytes &&
	       !(node_limits(c->options.node)->unenforced & BOX_LIMIT_MEMORY);
}

/* What every request about a slot says. */
void slot_request(const struct containers *c, const struct slot *slot, enum launch_op op,
		  struct launch_request *ret);

/* The sheet of walls goes with a request, after its other descriptors; -1: none. */
void call_add_walls(struct launch_call *call, int sheet_fd);

/* A worker removed the slot's cgroup and namespaces. */
void slot_cgroup_gone(struct containers *c, struct slot *slot);

/* prepare.c: make dirty slots clean again and give everything back at the end. */
void prepare_slots(struct containers *c);
/* Slots of an image that is going are given back, those of others stay. */
void prepare_forget(struct backend *b, uint32_t image);
void prepare_drain(struct containers *c);
/* quarantine.c: a slot in which somebody may be left: swept again and again until nobody is. */
void quarantine_slot(struct containers *c, struct slot *slot);
/* A slot whose preparation had not begun may be taken at once. */
bool prepare_withdraw(struct containers *c, struct slot *slot);

/* box_told.c: all that is told of a box's cgroup, before a program of it runs. */
int box_tell(struct container *box);
/* The guard holds the box to it from here on; 0: to none, or still to what it was. */
int box_policy_tell(struct container *box, uint32_t policy, uint32_t version);
void slot_policy_end(struct containers *c, struct slot *slot);
/* The cgroup goes: its id is forgotten. */
void slot_told_end(struct containers *c, struct slot *slot);
/* Of network `shared`: see struct guard_shared. */
uint32_t slot_address_next(const struct container *box);
/* box_egress.c: after the guard knows its network; policy 0: nowhere */
int box_egress_tell(struct container *box, uint32_t policy);
void slot_egress_end(struct containers *c, struct slot *slot);
void slot_egress_forget(struct containers *c, struct slot *slot);

/* freeze.c */
int container_box_freeze(struct box *box, struct box_freeze *freeze);
int container_box_thaw(struct box *box, struct box_freeze *freeze);

/* narrow.c */
int container_box_clear(struct box *box, struct box_clear *clear);
int container_box_narrow(struct box *box, struct box_narrow *narrow);
int container_box_phase(struct box *box, uint32_t version);
int container_box_network(const struct box *box, struct box_sockets *ret);

/* port.c */
int container_port_ask(struct box_port *port);

/* open.c */
int container_image_attach(struct backend *b, uint32_t image, int mount_fd, void *owner,
			   void (*ready)(void *owner, int error));
int container_image_detach(struct backend *b, uint32_t image, void *owner,
			   void (*ready)(void *owner, int error));
void container_close(struct backend *b);

/* run.c */
struct run *container_run_new(struct box *box);
void container_run_free(struct run *run);
int container_run_start(struct run *run, const struct run_spec *spec);
void container_run_terminate(struct run *run);
void container_run_kill(struct run *run);
struct container_run *container_run_of(struct run *run);

/* finish.c */
int container_run_finish(struct run *run, struct run_end *end);

/* run_ask.c */
int container_run_signal(struct run *run, int signal);
int container_run_ask(struct run *run, const struct run_ask *ask);
