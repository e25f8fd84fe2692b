/*
 * Owns what is asked of the engine and what counts as a good answer. Called by the load loop.
 * Must hold: an answer is good only if everything in it is as asked; nothing here waits.
 */
#include "loadgen/request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CALL_TIMEOUT_MS = 60 * 1000, PROGRAM_TIMEOUT_MS = 30 * 1000, PROBE_ASSERTIONS_MIN = 30 };

static struct dsec_bytes text_bytes(const char *text)
{
	return (struct dsec_bytes){ .data = text, .bytes = strlen(text) };
}

int requester_init(struct requester *requester, struct dsec *d, const struct load_options *options)
{
	static const char *const names[REQUEST_NAMESPACES] = { "cgroup", "ipc",	 "mnt", "net",
							       "pid",	 "user", "uts" };

	*requester = (struct requester){ .d = d, .options = options };
	for (int i = 0; i < REQUEST_NAMESPACES; i++) {
		char path[64];
		ssize_t length;

		snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
		length = readlink(path, requester->namespaces[i], REQUEST_NAMESPACE_BYTES - 1);
		if (length < 0)
			return -errno;
		requester->namespaces[i][length] = '\0';
	}
	return dsec_queue_new(d, &requester->queue);
}

void requester_done(struct requester *requester)
{
	dsec_queue_free(requester->queue);
	requester->queue = NULL;
}

static int64_t create_send(const struct requester *requester, const struct dsec_call *call)
{
	const struct load_options *options = requester->options;
	const struct dsec_label label = { text_bytes("loadgen"), text_bytes(options->label) };
	const struct dsec_create_opts opts = {
		.size = sizeof(opts),
		.count = 1,
		.image = options->image,
		.policy = options->policy,
		.network = options->network,
		.flags = options->is_fresh_root ? DSEC_CREATE_FRESH_ROOT : 0,
		.labels = &label,
		.label_count = 1,
		.on_disconnect = DSEC_DISCONNECT_DESTROY,
	};

	return dsec_create(requester->d, call, &opts);
}

static int64_t exec_send(const struct requester *requester, const struct dsec_call *call,
			 struct dsec_id sandbox, const struct dsec_bytes *argv, uint32_t argc)
{
	const struct dsec_exec_opts opts = {
		.size = sizeof(opts),
		.flags = DSEC_EXEC_CAPTURE,
		.argv = argv,
		.argc = argc,
		.timeout_ms = PROGRAM_TIMEOUT_MS,
	};

	return dsec_exec(requester->d, call, sandbox, &opts);
}

static int64_t program_send(const struct requester *requester, const struct dsec_call *call,
			    struct dsec_id sandbox)
{
	const struct dsec_bytes argv = text_bytes(requester->options->program);

	return exec_send(requester, call, sandbox, &argv, 1);
}

static int64_t probe_send(const struct requester *requester, const struct dsec_call *call,
			  struct dsec_id sandbox)
{
	struct dsec_bytes argv[2 + REQUEST_NAMESPACES] = {
		text_bytes(requester->options->probe),
		text_bytes(requester->options->network != DSEC_NETWORK_NONE ? "private" : "none"),
	};

	for (int i = 0; i < REQUEST_NAMESPACES; i++)
		argv[2 + i] = text_bytes(requester->namespaces[i]);
	return exec_send(requester, call, sandbox, argv, 2 + REQUEST_NAMESPACES);
}

static int64_t destroy_send(const struct requester *requester, const struct dsec_call *call,
			    struct dsec_id sandbox)
{
	const struct dsec_select select = { .size = sizeof(select), .count = 1, .ids = &sandbox };

	return dsec_destroy(requester->d, call, &select);
}

int request_send(const struct requester *requester, struct request *request)
{
	const struct dsec_call call = { .size = sizeof(call),
					.timeout_ms = CALL_TIMEOUT_MS,
					.flags = DSEC_CALL_ONCE,
					.queue = requester->queue,
					.tag = request->tag };
	int64_t ticket = -EINVAL;

	switch (request->op) {
	case LOAD_CREATE:
		ticket = create_send(requester, &call);
		break;
	case LOAD_EXEC:
		ticket = program_send(requester, &call, request->sandbox);
		break;
	case LOAD_PROBE:
		ticket = probe_send(requester, &call, request->sandbox);
		break;
	case LOAD_DESTROY:
		ticket = destroy_send(requester, &call, request->sandbox);
		break;
	case LOAD_END:
		break;
	}
	if (ticket < 0) {
		if (ticket != -EAGAIN)
			snprintf(request->trouble, sizeof(request->trouble), "%s",
				 dsec_error(requester->d, ticket));
		return (int)ticket;
	}
	request->ticket = ticket;
	return 0;
}

/* ---- answers ---- */

static enum request_verdict status_judge(struct request *request, const struct dsec_status *status)
{
	if (status->code == DSEC_OK)
		return REQUEST_OK;
	request->retry_after_ms = status->retry_after_ms;
	snprintf(request->trouble, sizeof(request->trouble), "code %u step %s error %s: %s",
		 status->code, status->step[0] ? status->step : "-",
		 status->error ? strerror(status->error) : "-", status->detail);
	return status->code == DSEC_REFUSED ? REQUEST_REFUSED : REQUEST_FAILED;
}

static enum request_verdict create_take(struct request *request, const struct dsec_event *event,
					uint64_t now_ns)
{
	enum request_verdict verdict = status_judge(request, &event->status);
	const struct dsec_created *created = event->body;

	if (event->kind == DSEC_EV_CREATED && verdict == REQUEST_OK) {
		request->sandbox = event->subject;
		request->has_sandbox = true;
		request->is_reused = created && created->reused;
		request->timed_ns = now_ns;
	} else if (event->kind == DSEC_EV_CREATED) {
		request->not_created = verdict;
	}
	if (!(event->flags & DSEC_LAST))
		return REQUEST_GOING_ON;
	if (request->has_sandbox)
		return REQUEST_OK;
	if (request->not_created)
		return request->not_created;
	if (verdict != REQUEST_OK)
		return verdict;
	snprintf(request->trouble, sizeof(request->trouble), "DONE without CREATED");
	return REQUEST_FAILED;
}

static const struct dsec_output *result_output(const struct dsec_result *result, uint32_t stream)
{
	for (uint32_t i = 0; i < result->output_count; i++) {
		if (result->outputs[i].stream == stream)
			return &result->outputs[i];
	}
	return NULL;
}

static int output_length(const struct dsec_output *output)
{
	size_t bytes = output ? output->head.bytes : 0;

	return bytes > 300 ? 300 : (int)bytes;
}

static enum request_verdict result_judge(struct request *request, const struct dsec_result *result)
{
	const struct dsec_output *out, *err;

	if (!result) {
		snprintf(request->trouble, sizeof(request->trouble), "exec: no result");
		return REQUEST_FAILED;
	}
	if (result->reason == DSEC_EXIT && result->exit_code == 0)
		return REQUEST_OK;
	out = result_output(result, 1);
	err = result_output(result, 2);
	snprintf(request->trouble, sizeof(request->trouble),
		 "%s: reason %u status %d signal %d: %.*s%.*s",
		 request->op == LOAD_PROBE ? "isolation" : "exec", result->reason,
		 result->exit_code, result->signal, output_length(out),
		 out ? (const char *)out->head.data : "", output_length(err),
		 err ? (const char *)err->head.data : "");
	return REQUEST_FAILED;
}

/* The probe ends with "asserted N": a probe that asserted little has not asserted isolation. */
static enum request_verdict probe_judge(struct request *request, const struct dsec_result *result)
{
	const struct dsec_output *out;
	char text[64] = "";

	if (result_judge(request, result) != REQUEST_OK)
		return REQUEST_FAILED;
	out = result_output(result, 1);
	if (out && out->head.bytes < sizeof(text))
		memcpy(text, out->head.data, out->head.bytes);
	if (sscanf(text, "asserted %u", &request->assertions) == 1 &&
	    request->assertions >= PROBE_ASSERTIONS_MIN)
		return REQUEST_OK;
	snprintf(request->trouble, sizeof(request->trouble),
		 "isolation: the probe said \"%s\", at least %d assertions wanted", text,
		 PROBE_ASSERTIONS_MIN);
	return REQUEST_FAILED;
}

enum request_verdict request_take(struct request *request, const struct dsec_event *event,
				  uint64_t now_ns)
{
	enum request_verdict verdict;

	if (event->ticket != request->ticket)
		return REQUEST_GOING_ON;
	if (request->op == LOAD_CREATE)
		return create_take(request, event, now_ns);
	if (!(event->flags & DSEC_LAST))
		return REQUEST_GOING_ON;
	request->timed_ns = now_ns;
	verdict = status_judge(request, &event->status);
	if (verdict != REQUEST_OK || request->op == LOAD_DESTROY)
		return verdict;
	if (request->op == LOAD_PROBE)
		return probe_judge(request, event->body);
	return result_judge(request, event->body);
}
