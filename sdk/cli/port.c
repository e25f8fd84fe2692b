/* `dsec port`: a way to a port of a sandbox. Called by main.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sdk/cli/bridge.h"
#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

struct way {
	struct dsec_forward forward;
	bool told;
};

static void way_keep(void *state, const struct dsec_event *event)
{
	struct way *way = state;

	if (!(event->flags & DSEC_LAST) || !event->body)
		return;
	way->forward = *(const struct dsec_forward *)event->body;
	way->told = true;
}

static void way_tell(struct session *session, struct dsec_id id, const struct way *way)
{
	auto_json json_t *json = json_status(&session->failure); /* none */
	const struct dsec_forward *forward = &way->forward;

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_object_set_new(json, "id", json_id(id));
	(void)json_object_set_new(json, "port", json_integer(forward->port));
	(void)json_object_set_new(json, "family", json_integer(forward->family));
	(void)json_object_set_new(json, "address", json_string(forward->address));
	(void)json_object_set_new(json, "token", json_string(forward->token));
	if (!session->options->json && !session->options->listen)
		(void)printf("%s %s\n", forward->address, forward->token);
	session_tell(session, json);
}

static int way_use(struct session *session, struct dsec_id id, const struct way *way)
{
	struct bridge bridge;
	char text[160];
	int r;

	if (!session->options->listen) {
		way_tell(session, id, way);
		return 0;
	}
	r = bridge_open(&bridge, session->options->listen, &way->forward);
	if (r < 0) {
		(void)snprintf(text, sizeof(text), "--listen %.80s: %s", session->options->listen,
			       r == -EINVAL ? "127.0.0.1:PORT, [::1]:PORT or PORT is wanted" :
					      strerror(-r)); /* cut is fine */
		return session_fail_error(session, r, "listen", text);
	}
	way_tell(session, id, way);
	(void)fflush(stdout); /* told at the end, by main() */
	report_note(session->options, "listening on %s", bridge.address);
	r = bridge_run(&bridge);
	return session_fail_error(session, r, "engine", "the engine does not answer any more");
}

static int port_make(struct session *session)
{
	const struct options *options = session->options;
	struct dsec_port_opts opts = { .size = sizeof(opts),
				       .wait_ms = (uint32_t)options->wait_ms,
				       .flags = options->revoke ? DSEC_PORT_REVOKE : 0 };
	struct dsec_call call = session_call(session);
	struct way way = { .told = false };
	uint64_t port;
	struct dsec_id id;

	if (value_parse_number(options->arguments[1], &port) < 0 || port < 1 || port > 65535)
		return session_refuse(session, "port: '%s' is not a port: 1 to 65535",
				      options->arguments[1]);
	if (select_one(session, options->arguments[0], &id) < 0)
		return EXIT_TROUBLE;
	opts.port = (uint32_t)port;
	if (session_events(session, dsec_port(session->d, &call, id, &opts), "port", way_keep,
			   &way) < 0)
		return EXIT_TROUBLE;
	if (way.told)
		return way_use(session, id, &way);
	return session_done(session); /* revoked */
}

int verb_port(const struct options *options)
{
	struct session session = { .options = options };
	int status = EXIT_TROUBLE;

	if (options->argument_count != 2)
		status = session_refuse(&session, "port wants a sandbox and a port");
	else if (options->revoke && (options->listen || options->wait_ms))
		status = session_refuse(&session, "port: --revoke goes alone");
	else if (options->listen && !strncmp(session_address(options), "ssh:", 4))
		status = session_refuse(&session, "port: the engine's host has the port, and "
						  "--listen would not reach it: ssh -L does");
	else if (session_open(&session, false) == 0)
		status = port_make(&session);
	return session_end(&session, status);
}
