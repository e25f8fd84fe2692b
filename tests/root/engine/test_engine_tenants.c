/*
 * Several tenants of one engine: through sockets of their own, through one socket by tokens, and
 * through a gateway. What is another's is as if it had never been.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/tenant_client.h"

enum { VERBS = 18, TENANTS = 3, GUESSES = 256 };

static struct dsec_bytes bytes_of(const char *text)
{
	return (struct dsec_bytes){ text, strlen(text) };
}

/* ---- every verb with an id ---- */

static int64_t file_ask(struct dsec *d, struct dsec_id id, uint32_t verb)
{
	struct dsec_file_opts opts = { .size = sizeof opts, .verb = verb, .path = { "/tmp/x", 6 } };

	if (verb == DSEC_FILE_READ)
		return dsec_read(d, NULL, id, &opts);
	if (verb == DSEC_FILE_RENAME)
		opts.to = bytes_of("/tmp/y");
	if (verb != DSEC_FILE_WRITE)
		return dsec_file(d, NULL, id, &opts);
	opts.input = bytes_of("text");
	return dsec_write(d, NULL, id, &opts);
}

static int64_t selected_ask(struct dsec *d, struct dsec_id id, unsigned verb)
{
	const struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };
	const struct dsec_change_opts change = { .size = sizeof change,
						 .set = DSEC_CHANGE_TTL,
						 .ttl_s = 5 };

	return verb == 0 ? dsec_destroy(d, NULL, &select) :
	       verb == 1 ? dsec_change(d, NULL, &select, &change) :
			   dsec_stats(d, NULL, &select);
}

/* One of the verbs that take an id. */
static int64_t verb_ask(struct dsec *d, struct dsec_id id, unsigned verb)
{
	const struct command command = SH("echo gotcha");
	struct dsec_attach_opts attach = { .size = sizeof attach, .exec = 1 };
	struct dsec_port_opts port = { .size = sizeof port, .port = 80 };
	struct dsec_list_opts list = { .size = sizeof list,
				       .what = DSEC_LIST_EXECS,
				       .sandbox = id };

	switch (verb) {
	case 0:
		return command_try(d, id, &command, NULL);
	case 1:
		return dsec_attach(d, NULL, id, &attach);
	case 2:
		return dsec_signal(d, NULL, id, 1, SIGKILL);
	case 3:
		return dsec_resize(d, NULL, id, 1, 24 << 16 | 80);
	case 4:
		return dsec_port(d, NULL, id, &port);
	case 5:
		port.wait_ms = 1000;
		return dsec_port(d, NULL, id, &port);
	case 6:
		return dsec_inspect(d, NULL, id);
	case 7:
		return dsec_list(d, NULL, &list);
	case 8:
	case 9:
	case 10:
		return selected_ask(d, id, verb - 8);
	default:
		return file_ask(d, id, verb - 11 + DSEC_FILE_READ);
	}
}

/* An id of the same engine and shard that never was. */
static struct dsec_id id_made_up(struct dsec_id id)
{
	id.lo ^= 1ull << 45;
	return id;
}

static void expect_strange_to(struct dsec *d, struct dsec_id id)
{
	for (unsigned verb = 0; verb < VERBS; verb++) {
		struct answer other = answer_wait(d, verb_ask(d, id, verb));
		struct answer never = answer_wait(d, verb_ask(d, id_made_up(id), verb));
		bool same = !memcmp(&other, &never, sizeof other);

		if (!expect(same && other.rows == 0))
			note("verb %u: %u %s \"%s\", not %u %s \"%s\"", verb, other.status.code,
			     other.status.step, other.status.detail, never.status.code,
			     never.status.step, never.status.detail);
		/* Destroying what is not there is fine, and nothing of it has usage. */
		expect(other.status.code == DSEC_ABSENT || verb == 8 || verb == 10);
	}
}

/* Its sandbox with an exec and a file, strange to the others by every verb, and as it was. */
static void expect_own(struct dsec *owner, struct dsec *stranger)
{
	struct dsec_create_opts opts = create_opts(1);
	struct made made;
	struct dsec_id id;

	opts.network = DSEC_NETWORK_PRIVATE;
	made = create_run(owner, &opts);
	if (!expect(made.created == 1))
		return;
	id = made.ids[0];
	made_done(&made);
	auto_ran struct ran before = shell_run(owner, id, "echo mine >/tmp/x; sleep 0; echo ok");

	expect(ran_says(&before, "ok\n"));
	expect_strange_to(stranger, id);
	auto_ran struct ran after = shell_run(owner, id, "cat /tmp/x; ls /tmp");

	expect(ran_says(&after, "mine\nx\n"));
	expect(list_has(owner, id) && !list_has(stranger, id));
	/* The first exec and this one: nobody else ran any. */
	expect(after.result && after.result->exec == 2);
	sandbox_end(owner, id);
	/* Of one that ended the owner hears why, and nobody else. */
	expect(answer_wait(owner, dsec_inspect(owner, NULL, id)).status.code == DSEC_OK);
	expect_strange_to(stranger, id);
}

/* ---- claims: sockets ---- */

static const struct way by_default = { 0 };
static const struct way blue = { .door = "blue" };
static const struct way green = { .door = "green" };

static void a_connection_is_its_sockets_tenant(struct engine *e)
{
	struct dsec *ours = way_open(e, blue), *theirs = way_open(e, green);
	struct dsec *d = way_open(e, by_default);

	expect(is_of(d, "default"));
	dsec_close(d);
	expect(is_of(ours, "blue"));
	expect(is_of(theirs, "green"));
	dsec_close(ours);
	dsec_close(theirs);
}

static void every_verb_with_anothers_id_answers_as_with_one_that_never_was(struct engine *e)
{
	struct dsec *ours = way_open(e, blue), *theirs = way_open(e, green);
	struct dsec *d = way_open(e, by_default);

	expect_own(ours, theirs);
	expect_own(theirs, ours);
	expect_own(d, theirs);
	expect_own(ours, d); /* a gateway that acts for itself */
	dsec_close(d);
	dsec_close(ours);
	dsec_close(theirs);
}

/* Around one's own ids are others': of the same place, of places and numbers nearby. */
static void ids_around_ones_own_are_nobodys(struct engine *e)
{
	struct dsec *ours = way_open(e, blue), *theirs = way_open(e, green);
	struct dsec_create_opts opts = create_opts(4);
	auto_made struct made made = create_run(ours, &opts);
	struct dsec_id mine = sandbox_make(theirs);
	unsigned strange = 0;

	expect(made.created == 4);
	for (unsigned i = 0; i < GUESSES; i++) {
		struct dsec_id guess = mine;

		/* shard, then sequence and place in all pairs nearby */
		guess.lo = (guess.lo & ~(1ull << 52)) | (uint64_t)(i & 1) << 52;
		guess.lo += ((int64_t)(i / 2 % 16) - 8) * (1ll << 20) + (int64_t)(i / 32) - 4;
		if (guess.lo != mine.lo)
			strange += answer_wait(theirs, verb_ask(theirs, guess, 2)).status.code ==
				   DSEC_ABSENT;
		else
			strange++;
	}
	expect(strange == GUESSES);
	for (uint32_t i = 0; i < made.created; i++)
		expect(list_has(ours, made.ids[i]));
	list_destroy(theirs);
	expect(list_count(ours) == 4); /* theirs did not reach it */
	list_destroy(ours);
	dsec_close(ours);
	dsec_close(theirs);
}

static void labels_counts_and_check_are_a_tenants_own(struct engine *e)
{
	struct dsec *ours = way_open(e, blue), *theirs = way_open(e, green);
	const struct dsec_label label = { bytes_of("task"), bytes_of("1") };
	const struct dsec_select select = { .size = sizeof select,
					    .labels = &label,
					    .label_count = 1 };
	struct dsec_create_opts opts = create_opts(2);

	opts.labels = &label;
	opts.label_count = 1;
	auto_made struct made made = create_run(ours, &opts);
	auto_made struct made other = create_run(theirs, &opts);

	expect(made.created == 2 && other.created == 2);
	expect(answer_wait(ours, dsec_stats(ours, NULL, &select)).rows == 2);
	expect(holdings_now(ours).sandboxes == 2 && holdings_now(ours).clients == 1);
	expect(holdings_now(ours).slots == UINT64_MAX);
	expect(answer_wait(theirs, dsec_destroy(theirs, NULL, &select)).status.code == DSEC_OK);
	expect(list_count(ours) == 2 && list_count(theirs) == 0 && list_count(e->d) == 2);
	list_destroy(ours);
	dsec_close(ours);
	dsec_close(theirs);
}

/* The same id of two tenants is two requests. */
static void request_ids_are_a_tenants_own(struct engine *e)
{
	struct dsec *ours = way_open(e, blue), *theirs = way_open(e, green);
	struct dsec_create_opts opts = create_opts(1);
	struct dsec_call call = { .size = sizeof call };
	uint64_t ms = now_ms();
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail */
	ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	for (int i = 0; i < 6; i++)
		call.request_id[i] = (uint8_t)(ms >> (40 - 8 * i));
	call.request_id[9] = 7;
	auto_made struct made made = create_wait(ours, create_start(ours, &opts, &call), 1);
	auto_made struct made other = create_wait(theirs, create_start(theirs, &opts, &call), 1);
	auto_made struct made again = create_wait(theirs, create_start(theirs, &opts, &call), 1);

	if (expect(made.created == 1 && other.created == 1 && again.created == 1)) {
		expect(memcmp(made.ids, other.ids, sizeof *made.ids) != 0);
		expect(memcmp(again.ids, other.ids, sizeof *made.ids) == 0);
	}
	expect(list_count(ours) == 1 && list_count(theirs) == 1);
	list_destroy(ours);
	list_destroy(theirs);
	dsec_close(ours);
	dsec_close(theirs);
}

/* ---- claims: images ---- */

static struct answer image_ask(struct dsec *d, uint32_t verb, const char *name)
{
	const struct dsec_image_opts opts = { .size = sizeof opts, .verb = verb, .name = name };

	return answer_wait(d, dsec_image(d, NULL, &opts));
}

static bool file_copy(const char *from, const char *to)
{
	auto_close int in = open(from, O_RDONLY | O_CLOEXEC);
	auto_close int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	ssize_t n;

	while ((n = copy_file_range(in, NULL, out, NULL, 1 << 30, 0)) > 0)
		;
	return n == 0;
}

static void images_under_a_tenants_name_are_its_own(struct engine *e)
{
	struct dsec *ours = way_open(e, blue), *theirs = way_open(e, green);
	char path[160], own[160], from[160];
	struct dsec_create_opts opts = create_opts(1);

	(void)snprintf(path, sizeof path, "%s/blue", engine_images());
	(void)snprintf(own, sizeof own, "%s/blue/own.erofs", engine_images());
	(void)snprintf(from, sizeof from, "%s/test.erofs", engine_images());
	expect(mkdir(path, 0755) == 0);
	expect(file_copy(from, own));
	opts.image = "blue/own";
	auto_made struct made made = create_run(ours, &opts);
	auto_made struct made strange = create_run(theirs, &opts);

	opts.image = "green/none";
	auto_made struct made never = create_run(theirs, &opts);

	opts.image = "test+blue/own";
	auto_made struct made within = create_run(theirs, &opts);

	opts.image = "blue/own+test";
	auto_made struct made below = create_run(theirs, &opts);

	expect(made.created == 1 && strange.created == 0);
	expect(!memcmp(&strange.last, &never.last, sizeof never.last));
	/* Nor as a part; who may read it is told that it cannot be one. */
	expect(!memcmp(&within.last, &never.last, sizeof never.last));
	expect(!memcmp(&below.last, &never.last, sizeof never.last));
	auto_made struct made part = create_run(ours, &opts);

	expect(part.created == 0 && part.last.code == DSEC_INVALID);
	struct answer other = image_ask(theirs, DSEC_IMAGE_INSPECT, "blue/own");
	struct answer none = image_ask(theirs, DSEC_IMAGE_INSPECT, "blue/none");

	expect(!memcmp(&other, &none, sizeof none) && none.status.code == DSEC_ABSENT);
	other = image_ask(theirs, DSEC_IMAGE_REMOVE, "blue/own");
	none = image_ask(theirs, DSEC_IMAGE_REMOVE, "blue/none");
	expect(!memcmp(&other, &none, sizeof none) && none.status.code == DSEC_ABSENT);
	expect(image_ask(theirs, DSEC_IMAGE_IMPORT, "blue/own").status.code == DSEC_DENIED);
	expect(image_ask(theirs, DSEC_IMAGE_REMOVE, "test").status.code == DSEC_DENIED);
	expect(image_ask(ours, DSEC_IMAGE_LIST, NULL).rows ==
	       image_ask(theirs, DSEC_IMAGE_LIST, NULL).rows + 1);
	list_destroy(ours);
	expect(unlink(own) == 0 && rmdir(path) == 0);
	dsec_close(ours);
	dsec_close(theirs);
}

/* ---- claims: gateways ---- */

static void a_gateway_acts_for_the_tenant_it_names(struct engine *e)
{
	struct way way = by_default;
	struct dsec *ours = way_open(e, blue), *theirs = way_open(e, green), *acting, *all;
	struct dsec_id id = sandbox_make(ours), other = sandbox_make(theirs), made;
	struct dsec_create_opts opts = create_opts(1);

	way.acts_for = "blue";
	acting = way_open(e, way);
	expect(is_of(acting, "blue") && list_has(acting, id) && !list_has(acting, other));
	made = sandbox_make(acting);
	expect(list_has(ours, made) && !list_has(theirs, made));
	way.acts_for = "*";
	all = way_open(e, way);
	expect(is_of(all, "*") && list_has(all, id) && list_has(all, other));
	expect(holdings_now(all).sandboxes == 3 && holdings_now(all).slots != UINT64_MAX);
	expect(ticket_end(all, create_start(all, &opts, NULL)).code == DSEC_DENIED);
	expect(answer_wait(all, verb_ask(all, id, 0)).status.code == DSEC_DENIED);
	list_destroy(all);
	expect(list_count(ours) == 0 && list_count(theirs) == 0);
	for (struct dsec **d = (struct dsec *[]){ ours, theirs, acting, all, NULL }; *d; d++)
		dsec_close(*d);
}

static void who_is_no_gateway_acts_for_nobody_else(struct engine *e)
{
	struct way way = green;
	struct dsec *d = NULL;

	for (const char *const *name =
		     (const char *const[]){ "blue", "default", "*", "no-such", NULL };
	     *name; name++) {
		way.acts_for = *name;
		if (expect(way_try(e, way, &d) == -EACCES))
			expect(strstr(dsec_error(NULL, -EACCES), "only a gateway"));
	}
	way.acts_for = "green"; /* itself */
	d = way_open(e, way);
	expect(is_of(d, "green"));
	dsec_close(d);
	way = by_default;
	way.acts_for = "no-such";
	expect(way_try(e, way, &d) == -ENXIO);
	way.acts_for = "No Such";
	expect(way_try(e, way, &d) == -EINVAL);
}

/* ---- claims: limits ---- */

static const struct way small = { .door = "small" };

/* Tried: what is refused is as good. */
static bool one_more(struct dsec *d, const struct dsec_create_opts *opts)
{
	struct made made = create_run(d, opts);

	made_done(&made);
	return true;
}

static void a_tenants_limits_are_refused_by_name(struct engine *e)
{
	struct dsec *d = way_open(e, small), *clients[4] = { 0 };
	struct dsec_create_opts opts = create_opts(20);
	const struct command sleep = SH("sleep 60");
	int64_t tickets[3];
	int refused = 0;

	auto_made struct made made = create_run(d, &opts);

	/* 6 at once, some of them on each shard, and 10 a second. */
	expect(made.created >= 3 && made.created <= 6 && made.created + made.refused == 20);
	expect(!strcmp(made.trouble.step, "create.tenant_creates_per_s") ||
	       !strcmp(made.trouble.step, "create.tenant_sandboxes_max"));
	expect(made.retry_ms_min > 0);
	opts.count = 1;
	expect(until(10000, one_more(d, &opts) && list_count(d) == 6));
	for (int i = 0; i < 8; i++)
		(void)one_more(d, &opts);
	expect(list_count(d) == 6);
	for (int i = 0; i < 2; i++)
		tickets[i] = command_start(d, made.ids[i], &sleep, NULL);
	expect(until(10000, holdings_now(d).execs == 2));
	tickets[2] = command_start(d, made.ids[2], &sleep, NULL);
	struct dsec_status third = ticket_end(d, tickets[2]);

	expect(third.code == DSEC_REFUSED && third.retry_after_ms &&
	       !strcmp(third.step, "exec.tenant_execs_max"));
	for (int i = 0; i < 4; i++)
		refused += way_try(e, small, &clients[i]) == -EBUSY;
	expect(refused == 2); /* 3 connections, and one of them is d */
	for (int i = 0; i < 4; i++)
		dsec_close(clients[i]);
	list_destroy(d);
	(void)ticket_end(d, tickets[0]);
	(void)ticket_end(d, tickets[1]);
	dsec_close(d);
}

/* It asks for everything at once, on every shard; the other asks for one thing at a time. */
static void one_that_floods_makes_no_request_of_another_fail(struct engine *e)
{
	struct dsec *flood = way_open(e, blue), *d = way_open(e, green);
	struct dsec_create_opts opts = create_opts(512);
	const struct command sleep = SH("sleep 60");
	int64_t creating[16], running[48];
	struct dsec_id id;
	unsigned bad = 0;

	id = sandbox_make(flood);
	for (int i = 0; i < 48; i++)
		running[i] = command_start(flood, id, &sleep, NULL);
	for (int i = 0; i < 8; i++)
		creating[i] = create_start(flood, &opts, NULL);
	for (int i = 0; i < 6; i++) {
		struct dsec_id mine = sandbox_make(d);
		auto_ran struct ran ran = shell_run(d, mine, "echo ok");

		bad += !ran_says(&ran, "ok\n");
		bad += answer_wait(d, verb_ask(d, mine, 11)).status.code != DSEC_OK &&
		       answer_wait(d, verb_ask(d, mine, 12)).status.code != DSEC_OK;
	}
	expect(bad == 0);
	expect(list_count(d) == 6);
	for (int i = 0; i < 8; i++) {
		struct made made = create_wait(flood, creating[i], 512);

		expect(made.created + made.refused + made.failed == 512);
		made_done(&made);
	}
	while (list_count(flood)) /* some each time */
		list_destroy(flood);
	for (int i = 0; i < 48; i++)
		(void)ticket_end(flood, running[i]);
	list_destroy(d);
	dsec_close(flood);
	dsec_close(d);
}

/* ---- claims: tokens, and the keeper ---- */

static const struct way red = { .token = "red secret" };
static const struct way gray = { .token = "gray secret" };

static void through_one_socket_a_token_says_who_it_is(struct engine *e)
{
	struct dsec *ours = way_open(e, red), *theirs = way_open(e, gray), *d = NULL;

	d = way_open(e, by_default);
	expect(is_of(d, "default"));
	dsec_close(d);
	expect(is_of(ours, "red") && is_of(theirs, "gray"));
	expect(way_try(e, (struct way){ .token = "red secres" }, &d) == -EACCES);
	expect(way_try(e, (struct way){ .token = "red" }, &d) == -EACCES);
	/* A socket is not enough where its tenant has a token; another's token counts there. */
	expect(way_try(e, (struct way){ .door = "gray" }, &d) == -EACCES);
	d = way_open(e, (struct way){ .door = "gray", .token = "red secret" });
	expect(is_of(d, "red"));
	expect_own(ours, theirs);
	expect_own(theirs, ours);
	expect(list_count(d) == 0);
	dsec_close(d);
	dsec_close(ours);
	dsec_close(theirs);
}

static void every_socket_outlives_its_engine(struct engine *e)
{
	struct dsec *d;
	pid_t before = engine_pid(e);

	(void)kill(before, SIGKILL);
	expect(until(20000, engine_pid(e) && engine_pid(e) != before));
	d = way_open(e, (struct way){ .door = "gray", .token = "gray secret" });
	expect(is_of(d, "gray"));
	sandbox_end(d, sandbox_make(d));
	dsec_close(d);
	d = way_open(e, red);
	expect(is_of(d, "red"));
	dsec_close(d);
}

static const struct claim sockets[] = {
	CLAIM(a_connection_is_its_sockets_tenant),
	CLAIM(every_verb_with_anothers_id_answers_as_with_one_that_never_was),
	CLAIM(ids_around_ones_own_are_nobodys),
	CLAIM(labels_counts_and_check_are_a_tenants_own),
	CLAIM(request_ids_are_a_tenants_own),
	CLAIM(images_under_a_tenants_name_are_its_own),
	CLAIM(a_gateway_acts_for_the_tenant_it_names),
	CLAIM(who_is_no_gateway_acts_for_nobody_else),
	CLAIM(a_tenants_limits_are_refused_by_name),
	CLAIM(one_that_floods_makes_no_request_of_another_fail),
};
static const struct claim tokens[] = { CLAIM(through_one_socket_a_token_says_who_it_is),
				       CLAIM(every_socket_outlives_its_engine) };

int main(int argc, char **argv)
{
	char folder[64], doors[3][256], shown[2][256];
	const char *const socket_arguments[] = {
		"--shards",
		"2",
		"--sandboxes-max",
		"400",
		"--execs-max",
		"64",
		"--tenant",
		"name=default,gateway",
		"--tenant",
		doors[0],
		"--tenant",
		doors[1],
		"--tenant",
		doors[2],
		NULL,
	};
	const char *const token_arguments[] = {
		"--tenant", "name=default,gateway", "--tenant", shown[0], "--tenant", shown[1],
		NULL,
	};
	const struct suite suites[] = {
		SUITE("sockets", sockets, .arguments = socket_arguments, .tenant = "*"),
		SUITE("tokens", tokens, .arguments = token_arguments, .is_hurt = true,
		      .tenant = "*"),
	};
	const char *const tokens_written[] = { "red", "gray", NULL };
	int r;

	if (!tenant_folder_make(folder) || !tenant_token_write("red", "red secret") ||
	    !tenant_token_write("gray", "gray secret"))
		return 1;
	(void)snprintf(doors[0], sizeof doors[0], "name=blue,socket=%s/blue.sock", folder);
	(void)snprintf(doors[1], sizeof doors[1], "name=green,socket=%s/green.sock,mode=666",
		       folder);
	(void)snprintf(doors[2], sizeof doors[2],
		       "name=small,socket=%s/small.sock,sandboxes-max=6,creates-per-s=10,"
		       "execs-max=2,clients-max=3",
		       folder);
	(void)snprintf(shown[0], sizeof shown[0], "name=red,token-file=%s/red.token", folder);
	(void)snprintf(shown[1], sizeof shown[1],
		       "name=gray,token-file=%s/gray.token,socket=%s/gray.sock", folder, folder);
	r = suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
	if (!tenant_folder_remove(tokens_written)) {
		perror(folder); /* a socket that was left */
		return 1;
	}
	return r;
}
