/*
 * Operations on files: one flow from the helper's channels to the end of its process, for a part of
 * a file request. Called by request.c; called back by the backend. The helper does everything that
 * a sandbox can delay; here are descriptors of pipes and a socket only. The client hears the end
 * when the helper has answered and all it read has left; its process is reaped afterwards.
 */
#include "engine/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/file/file_state.h"
#include "engine/request/request.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

enum { END_GRACE_MS = 1000, COMMIT_GRACE_MS = 2000 };

static struct file *file_of(struct flow *f)
{
	return container_of(f, struct file, flow);
}

static void fd_close(int *fd)
{
	cleanup_close(fd);
	*fd = -1;
}

/* ---- waiting ---- */

static int file_wait(struct file *file, bool (*is_settled)(const struct file *file))
{
	if (is_settled(file))
		return FLOW_NEXT;
	file->is_settled = is_settled;
	return FLOW_WAIT;
}

void file_settle(struct file *file)
{
	if (!file->is_settled || !file->flow.waiting || !file->is_settled(file))
		return;
	file->is_settled = NULL;
	flow_resume(&file->flow, 0);
}

static bool inlet_is_quiet(const struct file *file)
{
	return !file->inlet.writing;
}

static bool run_is_over(const struct file *file)
{
	return file->run_over;
}

static bool talk_is_over(const struct file *file)
{
	return !file->receiving && (!file->outlet_open || file->outlet_over);
}

static bool answer_is_there(const struct file *file)
{
	return talk_is_over(file) && (file->silent || file->cut);
}

/* ---- cutting it off ---- */

static void run_kill(struct file *file)
{
	if (file->started && !file->run_over)
		file->sandbox->box->backend->class->run_kill(file->run);
}

void file_cut(struct file *file, const struct status *status)
{
	if (file->cut || !file->part)
		return;
	file->cut = true;
	file->cut_status = *status;
	if (file->receiving)
		io_cancel(file->sandbox->shard->io, &file->packet_op);
	if (file->outlet_open && !file->outlet_over)
		file->outlet_over = outlet_stop(&file->outlet);
	file_settle(file);
}

static struct status status_unknown(void)
{
	return (struct status){ .code = DSEC_UNKNOWN,
				.blame = DSEC_BLAME_GUEST,
				.error = ETIMEDOUT,
				.table = "file",
				.step = "commit",
				.detail = "it was to take effect and did not say whether it has" };
}

/* It does not start: whoever waits is told, and it is killed when it does. */
static void start_overdue(struct file *file)
{
	const struct status s = status_of_errno(-ETIMEDOUT, "file", "start");

	file_cut(file, &s);
	file_report(file, 0);
}

/* Too long: until it starts, while it works, after it was to take effect, or after it answered. */
static void limit_reached(struct timer *timer)
{
	struct file *file = container_of(timer, struct file, limit);
	struct status s = { .code = DSEC_DEADLINE,
			    .blame = DSEC_BLAME_GUEST,
			    .error = ETIMEDOUT,
			    .table = "file",
			    .step = "limit" };

	if (!file->started) {
		start_overdue(file);
		return;
	}
	if (!file->part) {
		run_kill(file);
		return;
	}
	if (file->committed)
		s = status_unknown();
	file_cut(file, &s);
}

static void limit_set(struct file *file, uint32_t ms)
{
	struct shard *shard = file->sandbox->shard;

	file->limit.expired = limit_reached;
	/* One per operation, and there is room for as many. */
	(void)timer_set(&shard->timers, &file->limit, io_now_ns(shard->io) + ms * 1000000ull);
}

/* ---- step "channels" ---- */

static void input_closed(struct inlet *inlet, int error)
{
	struct file *file = inlet->owner;

	if (!error && !file->cut) /* that must not take effect: it is asked again */
		file_commit(file);
}

static void input_quiet(struct inlet *inlet)
{
	file_settle(inlet->owner);
}

static void channels_close(struct file *file)
{
	for (int i = 0; i < 3; i++)
		fd_close(&file->helper_fds[i]);
	fd_close(&file->control_fd);
	fd_close(&file->out_fd);
}

static int channels_make(struct file *file)
{
	int pair[2], in_fd = -1;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	file->control_fd = pair[0];
	file->helper_fds[2] = pair[1];
	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	file->out_fd = pair[0];
	file->helper_fds[1] = pair[1];
	if (file->takes_input) {
		if (pipe2(pair, O_CLOEXEC) < 0)
			return -errno;
		file->helper_fds[0] = pair[0];
		in_fd = pair[1];
	}
	file->inlet.owner = file;
	file->inlet.closed = input_closed;
	file->inlet.quiet = input_quiet;
	inlet_open(&file->inlet, file->sandbox->shard->io, in_fd);
	return 0;
}

static int open_channels(struct flow *f)
{
	struct file *file = file_of(f);
	const struct request *request = file->part->request;
	const struct dsec_wire_file *wish = &request->body.file;
	const char *path, *to, *input;
	int r;

	/* They were checked by file_prepare(). */
	(void)wire_bytes(&request->payload, wish->path, &path);
	(void)wire_bytes(&request->payload, wish->to, &to);
	(void)wire_bytes(&request->payload, wish->input, &input);
	r = channels_make(file);
	if (r == 0)
		r = file_ask(file, path, to);
	if (r < 0)
		channels_close(file);
	else if (file->takes_input && !(wish->flags & DSEC_FILE_INPUT))
		r = inlet_feed(&file->inlet, input, wish->input.bytes);
	return r < 0 ? r : FLOW_NEXT;
}

static int close_channels(struct flow *f)
{
	struct file *file = file_of(f);
	const struct status over = { .code = DSEC_ABSENT,
				     .blame = DSEC_BLAME_CALLER,
				     .table = "input",
				     .step = "ticket",
				     .detail = "the write is over" };

	channels_close(file);
	return inlet_stop(&file->inlet, &over) ? FLOW_NEXT : file_wait(file, inlet_is_quiet);
}

/* ---- step "start" ---- */

static void run_started(struct run *run, int error)
{
	struct file *file = run->owner;

	/* The helper has its own; only those may keep the channels open. */
	for (int i = 0; i < 3; i++)
		fd_close(&file->helper_fds[i]);
	file->started = error == 0;
	file->failed_step = run->failed_step;
	flow_resume(&file->flow, error);
}

static void run_ended(struct run *run, int status)
{
	struct file *file = run->owner;

	(void)status; /* what it answered counts */
	file->run_over = true;
	file_settle(file);
}

static int start_run(struct flow *f)
{
	struct file *file = file_of(f);
	const struct backend_class *class = file->sandbox->box->backend->class;
	int r;

	file->run->owner = file;
	file->run->started = run_started;
	file->run->ended = run_ended;
	file->spec.whose = file->part ? file->part->request->client : 0;
	file->spec.is_helper = true;
	file->spec.user = file->user;
	file->spec.stdin_fd = file->helper_fds[0];
	file->spec.stdout_fd = file->helper_fds[1];
	file->spec.stderr_fd = file->helper_fds[2];
	r = class->run_start(file->run, &file->spec);
	if (r < 0) {
		file->failed_step = file->run->failed_step;
		return r;
	}
	limit_set(file, EXEC_START_LIMIT_S * 1000);
	return FLOW_WAIT;
}

/* It ends by itself once it has answered; nobody waits long for that. */
static int end_run(struct flow *f)
{
	struct file *file = file_of(f);

	if (file->run_over)
		return FLOW_NEXT;
	fd_close(&file->control_fd);
	if (file->done.packet && !file->cut)
		limit_set(file, END_GRACE_MS);
	else if (file->sandbox->state == DSEC_STATE_RUNNING) /* else it goes with PID 1 */
		run_kill(file);
	return file_wait(file, run_is_over);
}

/* ---- step "answer": until the helper has said how it went, and all it read is on its way ---- */

static void output_over(struct outlet *outlet, int error)
{
	struct file *file = outlet->owner;

	(void)error; /* that it was stopped */
	file->outlet_over = true;
	file_settle(file);
}

static int await_answer(struct flow *f)
{
	struct file *file = file_of(f);
	struct outlet_options options = {
		.io = f->host->io,
		.part = file->part,
		.event = { .subject = file->sandbox->id, .stream = FILE_STREAM_OUT },
	};
	int r;

	if (file->cut)
		return file_wait(file, answer_is_there);
	if (file->sends_output) {
		file->outlet.owner = file;
		file->outlet.over = output_over;
		options.fd = file->out_fd;
		options.window_bytes = DSEC_WINDOW_BYTES_MAX;
		file->out_fd = -1;
		r = outlet_open(&file->outlet, &options);
		if (r < 0)
			return r;
		file->outlet_open = true;
	}
	limit_set(file, file->hurries ? COMMIT_GRACE_MS : FILE_TIMEOUT_MS_MAX);
	file_receive(file);
	return file_wait(file, answer_is_there);
}

static int stop_talk(struct flow *f)
{
	struct file *file = file_of(f);

	timer_clear(&file->sandbox->shard->timers, &file->limit);
	return file_wait(file, talk_is_over);
}

/* clang-format off */
static const struct flow_step file_steps[] = {
	/* name        start          finish undo            limit_ms */
	{ "channels",  open_channels, NULL,  close_channels, 0 },
	{ "start",     start_run,     NULL,  end_run,        0 },
	{ "answer",    await_answer,  NULL,  stop_talk,      0 },
};
/* clang-format on */

static void file_free(struct file *file)
{
	struct sandbox *sandbox = file->sandbox;
	struct shard *shard = sandbox->shard;

	timer_clear(&shard->timers, &file->limit);
	if (file->outlet_open)
		outlet_done(&file->outlet);
	if (file->inlet.io)
		inlet_done(&file->inlet);
	if (file->part)
		sandbox->files_asked--; /* it was refused */
	*file->link = file->next;
	if (file->next)
		file->next->link = file->link;
	if (file->run)
		sandbox->box->backend->class->run_free(file->run);
	free(file->packet);
	pool_put(&shard->files, file);
	quota_give(sandbox->tenancy, QUOTA_FILES, 1);
	sandbox_file_over(sandbox);
}

static void file_done(struct flow *f, int error)
{
	struct file *file = file_of(f);

	file_report(file, error);
	if (!error && f->at == f->count)
		flow_unwind(f); /* comes back here with nothing left */
	else
		file_free(file);
}

static void file_cancel_step(struct flow *f)
{
	(void)f; /* a launcher request cannot be taken back; the start ends by itself */
}

/* ---- the op ---- */

static struct file *file_new(struct sandbox *sandbox, struct part *part)
{
	/* Who asks for one after the other need not wait until each was reaped. */
	const bool has_room = sandbox->files_asked < FILES_PER_SANDBOX_MAX &&
			      sandbox->file_count < 2 * FILES_PER_SANDBOX_MAX;
	struct file *file;

	if (!has_room || !quota_take(sandbox->tenancy, QUOTA_FILES, 1))
		return NULL;
	file = pool_take(&sandbox->shard->files);
	if (!file) {
		quota_give(sandbox->tenancy, QUOTA_FILES, 1);
		return NULL;
	}
	file->sandbox = sandbox;
	file->part = part;
	file->control_fd = file->out_fd = -1;
	for (int i = 0; i < 3; i++)
		file->helper_fds[i] = -1;
	file->next = sandbox->files;
	file->link = &sandbox->files;
	if (file->next)
		file->next->link = &file->next;
	sandbox->files = file;
	sandbox->file_count++;
	sandbox->files_asked++;
	sandbox_touch(sandbox);
	return file;
}

void file_part(struct part *part)
{
	struct shard *shard = part->shard;
	struct sandbox *sandbox = sandbox_of(part);
	struct file *file = NULL;
	struct status s = STATUS_OK;

	if (!sandbox || sandbox->state != DSEC_STATE_RUNNING)
		s = status_absent();
	else if (sandbox->phase.move || sandbox->still)
		s = phase_admits(sandbox, 0, part->detail);
	else if (!(file = file_new(sandbox, part)))
		s = status_of_errno(-EAGAIN, "file", "files_max");
	if (file)
		s = file_prepare(file, part->request);
	if (s.code) {
		if (file)
			file_free(file);
		part_end(part, &s, NULL);
		return;
	}
	part->work = file;
	flow_init(&file->flow, &shard->host, "file", file_steps,
		  sizeof file_steps / sizeof file_steps[0]);
	file->flow.done = file_done;
	file->flow.cancel = file_cancel_step;
	flow_build(&file->flow);
}

void files_overdue(struct sandbox *sandbox)
{
	for (struct file *file = sandbox->files; file; file = file->next)
		file_report(file, 0);
}

/* What is to take effect already is not stopped half way: it has a moment to say so. */
void file_part_cancel(struct part *part)
{
	struct file *file = part->work;
	const struct status s = status_of_errno(-ECANCELED, "file", "cancel");

	if (!file)
		return;
	file->hurries = true;
	if (!file->committed)
		file_cut(file, &s);
	else if (file->started)
		limit_set(file, COMMIT_GRACE_MS);
}

void file_input(struct part *part, struct part *input)
{
	struct file *file = part->work;
	const struct status s = file_invalid("input", -EINVAL);

	if (!file || !(part->request->body.file.flags & DSEC_FILE_INPUT))
		part_end(input, &s, NULL);
	else
		inlet_add(&file->inlet, input);
}

int file_credit(struct part *part, uint32_t stream, uint64_t consumed)
{
	struct file *file = part->work;

	if (!file || !file->outlet_open || stream != FILE_STREAM_OUT)
		return -EINVAL;
	return outlet_credit(&file->outlet, consumed);
}

uint32_t file_bytes(void)
{
	return sizeof(struct file);
}
