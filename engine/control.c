/*
 * The control thread's loop: accepts clients, mounts images, starts and replaces launcher workers,
 * waits for the signal to stop. Called by engine.c; shards speak to it by mail.
 */
#include "engine/control.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/client/client.h"
#include "engine/control_open.h"
#include "engine/engine.h"
#include "engine/serve/serve.h"
#include "engine/tenant/tenant.h"

enum {
	RESTARTS_AT_ONCE = 16,
	RESTART_PAUSE_NS = 200 * 1000000,
	WORKERS_END_NS = 1000000000,
	LOG_FLUSH_NS = 1000000000,
};

/* ---- launcher workers ---- */

/* A worker, until it was reaped. */
struct worker_pid {
	struct io_op op;
	siginfo_t info;
	int pid;
	struct control *control;
	struct worker_pid *next;
};

struct worker_mail {
	struct mail mail;
	struct shard *shard;
	int fd, pid;
	bool is_more; /* none was lost */
};

static void worker_reaped(struct io_op *op, int res)
{
	struct worker_pid *worker = container_of(op, struct worker_pid, op);
	struct worker_pid **at = &worker->control->workers;

	(void)res; /* how it ended is nobody's business: its channel told that it did */
	while (*at != worker)
		at = &(*at)->next;
	*at = worker->next;
	free(worker);
}

static void worker_deliver(struct mail *mail, void *owner)
{
	struct worker_mail *m = container_of(mail, struct worker_mail, mail);
	struct shard *shard = owner;

	shard->backend->class->launcher_add(shard->backend, m->fd, m->pid);
	free(m);
}

int control_launcher_start(struct control *control, struct shard *shard)
{
	struct worker_pid *worker = calloc(1, sizeof *worker);
	struct worker_mail *m = calloc(1, sizeof *m);
	pid_t pid;
	int r = -ENOMEM;

	if (worker && m)
		r = backend_launcher_start(control->node.backend_node, shard->number, &m->fd, &pid);
	if (r < 0) {
		free(worker);
		free(m);
		return r;
	}
	m->pid = pid;
	worker->pid = pid;
	worker->control = control;
	worker->next = control->workers;
	control->workers = worker;
	worker->op.done = worker_reaped;
	io_wait_pid(control->io, &worker->op, pid, &worker->info);
	m->mail.deliver = worker_deliver;
	mail_send(control->io, shard->io, &m->mail);
	return 0;
}

/* Workers that end again at once must not keep the control thread from everything else. */
static void restart_pace(struct control *control)
{
	const struct timespec pause = { .tv_nsec = RESTART_PAUSE_NS };
	uint64_t now_s = io_clock_ns(control->io) / 1000000000;

	if (now_s != control->restart_s) {
		control->restart_s = now_s;
		control->restarts = 0;
	}
	if (++control->restarts > RESTARTS_AT_ONCE)
		(void)nanosleep(&pause, NULL);
}

/* To the last: what they give back goes through workers too. */
static bool shards_need_workers(const struct control *control)
{
	return control->shards_stopped < control->node.shard_count;
}

static void worker_lost(struct mail *mail, void *owner)
{
	struct worker_mail *m = container_of(mail, struct worker_mail, mail);
	struct control *control = owner;

	if (!m->is_more && shards_need_workers(control))
		log_warning("launcher worker lost shard=%u, starting another", m->shard->number);
	m->mail.next = control->missing;
	control->missing = &m->mail;
}

/* The machine may be out of processes for a while: a shard must not stay without its workers. */
static void missing_start(struct control *control)
{
	struct mail *mail;

	while ((mail = control->missing)) {
		struct worker_mail *m = container_of(mail, struct worker_mail, mail);
		int r = 0;

		if (shards_need_workers(control)) {
			restart_pace(control);
			r = control_launcher_start(control, m->shard);
		}
		if (r < 0) {
			log_error("launcher start failed shard=%u err=%s, trying again",
				  m->shard->number, strerror(-r));
			return;
		}
		control->missing = mail->next;
		free(m);
	}
}

/* Their channels are closed, so they end; what is stopped or stuck is killed. */
void control_workers_end(struct control *control)
{
	uint64_t kill_ns = io_clock_ns(control->io) + WORKERS_END_NS;
	uint64_t leave_ns = kill_ns + WORKERS_END_NS;
	bool killed = false;

	while (control->workers && io_clock_ns(control->io) < leave_ns) {
		if (io_turn(control->io, killed ? leave_ns : kill_ns) < 0)
			break;
		if (killed || io_clock_ns(control->io) < kill_ns)
			continue;
		for (struct worker_pid *w = control->workers; w; w = w->next)
			(void)kill(w->pid, SIGKILL); /* not reaped: its own */
		killed = true;
	}
	if (control->workers)
		log_error("launcher worker pid=%d cannot be killed, it is left to the keeper",
			  control->workers->pid);
	missing_start(control); /* none is started any more */
}

static void worker_want(struct control *control, struct shard *shard, bool is_more)
{
	struct worker_mail *m = calloc(1, sizeof *m);

	if (!m) {
		log_error("launcher worker %s shard=%u and no memory to say so",
			  is_more ? "wanted" : "lost", shard->number);
		return;
	}
	m->shard = shard;
	m->is_more = is_more;
	m->mail.deliver = worker_lost;
	mail_send(shard->io, control->io, &m->mail);
}

void control_launcher_lost(struct control *control, struct shard *shard)
{
	worker_want(control, shard, false);
}

void control_launcher_wanted(struct control *control, struct shard *shard)
{
	worker_want(control, shard, true);
}

/* Only this thread reaps workers, so a pid in its list is the worker's own. */
static void worker_is_stuck(struct mail *mail, void *owner)
{
	struct worker_mail *m = container_of(mail, struct worker_mail, mail);
	struct control *control = owner;

	for (struct worker_pid *worker = control->workers; worker; worker = worker->next) {
		if (worker->pid != m->pid)
			continue;
		log_warning("launcher worker does not answer shard=%u pid=%d, killing it",
			    m->shard->number, m->pid);
		(void)kill(m->pid, SIGKILL); /* a zombie at worst */
	}
	free(m);
}

void control_launcher_stuck(struct control *control, struct shard *shard, int pid)
{
	struct worker_mail *m = calloc(1, sizeof *m);

	if (!m) {
		log_error("launcher worker does not answer pid=%d and no memory to say so", pid);
		return;
	}
	m->shard = shard;
	m->pid = pid;
	m->mail.deliver = worker_is_stuck;
	mail_send(shard->io, control->io, &m->mail);
}

/* ---- for images, their runs and policies ---- */

struct io *control_io(struct control *control)
{
	return control->io;
}

int control_cgroup(const struct control *control)
{
	return control->cgroup_fd;
}

struct image_table *control_images(struct control *control)
{
	return &control->images;
}

struct serve *control_serve(struct control *control)
{
	return control->serve;
}

struct node *control_node(struct control *control)
{
	return &control->node;
}

struct policy_table *control_policies(struct control *control)
{
	return &control->policies;
}

const struct config *control_config(const struct control *control)
{
	return control->config;
}

struct image_runs *control_image_runs(struct control *control)
{
	return &control->image_runs;
}

struct scratches *control_scratches(struct control *control)
{
	return &control->image_runs.scratches;
}

/* ---- clients ---- */

/* A client's place among clients_max: to its shard with a descriptor, back when it is gone. */
struct place {
	struct mail mail;
	struct door *door;
	int fd;
};

static void place_taken(struct mail *mail, void *owner)
{
	struct place *place = container_of(mail, struct place, mail);

	client_open(owner, place->fd, place->door->tenant, mail);
}

static void place_came_back(struct mail *mail, void *owner)
{
	struct control *control = owner;
	struct place *place = container_of(mail, struct place, mail);

	control->clients--;
	place->door->clients--;
	free(place);
}

void control_client_gone(struct control *control, struct shard *shard, struct mail *place)
{
	place->deliver = place_came_back;
	mail_send(shard->io, control->io, place);
}

/* By a tenant's own door its own; by the engine's what the doors of others leave. */
static uint32_t door_clients_max(const struct door *door)
{
	const struct control *control = door->control;
	const struct node *node = &control->node;
	uint32_t max = control->config->clients_max, others = 0;

	if (door->tenant)
		return node->tenants[door->tenant].limits[TENANT_CLIENTS];
	for (uint32_t i = 1; i < node->tenant_count; i++)
		if (control->doors[i].listen_fd >= 0)
			others += node->tenants[i].limits[TENANT_CLIENTS];
	return others < max ? max - others : 1;
}

static void client_admit(struct door *door, int fd)
{
	struct control *control = door->control;
	struct node *node = &control->node;
	struct place *place = NULL;

	if (control->clients < control->config->clients_max &&
	    door->clients < door_clients_max(door))
		place = malloc(sizeof *place);
	if (!place) {
		client_turn_away(fd, DSEC_REFUSED, "as many clients as there may be: clients_max");
		(void)close(fd);
		return;
	}
	control->clients++;
	door->clients++;
	place->door = door;
	place->fd = fd;
	place->mail.deliver = place_taken;
	mail_send(control->io, node->shards[control->next_shard++ % node->shard_count]->io,
		  &place->mail);
}

static void client_accepted(struct io_op *op, int res)
{
	struct door *door = container_of(op, struct door, accept);
	struct control *control = door->control;

	if (res >= 0) {
		client_admit(door, res);
	} else if (res != -ECANCELED && res != -EAGAIN) {
		log_error("accept failed err=%s, continuing", strerror(-res));
		restart_pace(control);
	}
	if (!(op->flags & IO_MORE) && !control->stopping)
		io_accept(control->io, op, door->listen_fd);
}

/* ---- stopping ---- */

static void control_stop(struct control *control, const char *why)
{
	if (control->stopping)
		return;
	log_info("stopping reason=\"%s\"", why);
	for (uint32_t i = 0; i < control->config->tenant_count; i++)
		if (control->doors[i].listen_fd >= 0)
			io_cancel(control->io, &control->doors[i].accept);
	control_shards_stop(control);
}

void control_shards_stop(struct control *control)
{
	if (control->stopping)
		return;
	control->stopping = true;
	control->stop_ns = io_clock_ns(control->io);
	images_stop(control);
	image_runs_stop(control);
	for (uint32_t i = 0; i < control->node.shard_count; i++)
		shard_stop(control->node.shards[i], control->io);
}

/* Most of the time that the keeper leaves us, so that we say what is left. */
static uint64_t give_up_ns(const struct control *control)
{
	return control->stop_ns + control->config->stop_timeout_s * 800000000ull;
}

int control_stop_turn(struct control *control, uint64_t until_ns)
{
	uint64_t end_ns = give_up_ns(control);

	if (control->stopping && !control->gave_up && io_clock_ns(control->io) >= end_ns) {
		control->gave_up = true;
		for (uint32_t i = 0; i < control->node.shard_count; i++)
			shard_give_up(control->node.shards[i], control->io);
	}
	if (control->stopping && !control->gave_up && until_ns > end_ns)
		until_ns = end_ns;
	return io_turn(control->io, until_ns);
}

static void shard_stopped(struct mail *mail, void *owner)
{
	struct control *control = owner;

	(void)mail;
	control->shards_stopped++;
}

void control_shard_stopped(struct control *control, struct shard *shard)
{
	shard->stopped_mail.deliver = shard_stopped;
	mail_send(shard->io, control->io, &shard->stopped_mail);
}

static void signal_came(struct io_op *op, int res)
{
	struct control *control = container_of(op, struct control, signal);

	if (res == sizeof control->signal_info && control->signal_info.ssi_signo == SIGHUP)
		(void)control_read_services(control); /* it said why not */
	else if (res == sizeof control->signal_info)
		control_stop(control, strsignal((int)control->signal_info.ssi_signo));
	if (res != -ECANCELED)
		io_read(control->io, op, control->signal_fd, &control->signal_info,
			sizeof control->signal_info);
}

static void lifeline_came(struct io_op *op, int res)
{
	struct control *control = container_of(op, struct control, lifeline);

	if (res != -ECANCELED)
		control_stop(control, "the lifeline ended");
}

/* A name that was given to another file is read anew within a second, and old policies go. */
static void refresh_due(struct control *control)
{
	uint64_t now_ns = io_clock_ns(control->io);

	if (now_ns - control->refreshed_ns < LOG_FLUSH_NS / 2)
		return;
	control->refreshed_ns = now_ns;
	images_refresh(control, control->config);
	image_runs_tick(control);
	serve_tick(control->serve);
	policies_sweep(&control->policies);
}

static void control_listen(struct control *control)
{
	for (uint32_t i = 0; i < control->config->tenant_count; i++) {
		struct door *door = &control->doors[i];

		door->accept.done = client_accepted;
		if (door->listen_fd >= 0)
			io_accept(control->io, &door->accept, door->listen_fd);
	}
	control->signal.done = signal_came;
	io_read(control->io, &control->signal, control->signal_fd, &control->signal_info,
		sizeof control->signal_info);
	if (control->config->lifeline_fd < 0)
		return;
	control->lifeline.done = lifeline_came;
	io_read(control->io, &control->lifeline, control->config->lifeline_fd,
		&control->lifeline_byte, 1);
}

void control_run(struct control *control)
{
	int r;

	control_listen(control);
	if (control->config->ready_fd >= 0) {
		/* Whoever waits for it has gone if this fails. */
		(void)!write(control->config->ready_fd, "ready\n", 6);
		(void)close(control->config->ready_fd);
	}
	log_info("ready instance=\"%s\" shards=%u sandboxes_max=%u", control->config->instance,
		 control->node.shard_count, control->config->sandboxes_max);
	while (control->shards_stopped < control->node.shard_count || image_runs_live(control)) {
		r = control_stop_turn(control,
				      io_clock_ns(control->io) +
					      (control->missing ? RESTART_PAUSE_NS : LOG_FLUSH_NS));
		if (r < 0)
			log_error("control loop failed err=%s, continuing", strerror(-r));
		missing_start(control);
		log_flush();
		refresh_due(control);
	}
}
