/*
 * What outlives an engine that was killed: the programs that hold who still lives, until somebody
 * sweeps; the policies that tenants loaded, until the instance is uninstalled. Nothing else.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/apparmor_kernel.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

enum { EXIT_REFUSED = 2, TURNS = 20, ROWS_MAX = 16 };

static const char *const small[] = { "--sandboxes-max", "16", "--shards", "2", NULL };

/* ---- engines that end otherwise ---- */

static void both_kill(struct engine *e)
{
	const pid_t engine = engine_pid(e);

	(void)kill(e->keeper, SIGSTOP); /* so that it starts no other; our child */
	(void)kill(engine, SIGKILL);	/* not reaped by it */
	(void)kill(e->keeper, SIGKILL);
	dsec_close(e->d);
	e->d = NULL;
	expect(engine_wait(e, 10000) == SIGKILL);
	expect(until(10000, waitpid(engine, NULL, WNOHANG) == engine));
}

/* Its exit status. */
static int uninstall(const struct engine *e)
{
	char command[768];
	int status;

	(void)snprintf(command, sizeof command,
		       "timeout 60 '%s' --uninstall --instance %s --socket %s --state %s "
		       "--images /tmp --sandboxes-max 16 --shards 2 2>>%s",
		       DSECD_PATH, e->instance, e->socket, engine_state(), e->log);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- who tries all the while ---- */

static const char held_policy[] =
	"name: held\nfiles: {protect: [/etc/ld.so.preload], hide: [/opt/x]}\n";

/*
 * A socket of the internet, and where LSM programs are a file that the policy protects: `hit` is as
 * long as what got through, `turn` as often as it was tried.
 */
static const struct command tries = SH("cd /tmp; : >hit; : >turn\n"
				       "p=/etc/ld.so.preload\n"
				       "[ $1 ] || set -- $(: 2>/dev/null >$p && rm $p && echo no)\n"
				       "while :; do\n"
				       "  probe_ipc sockets 1 || echo socket >>hit\n"
				       "  [ $1 ] || ! (: >$p) 2>/dev/null || echo file >>hit\n"
				       "  echo >>turn\n"
				       "done");

struct trier {
	int hit_fd, turn_fd;
};

static int file_of(pid_t pid, const char *name)
{
	char path[64];

	(void)snprintf(path, sizeof path, "/proc/%d/root/tmp/%s", pid, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static off_t size_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? -1 : st.st_size;
}

static void trier_end(struct trier *trier)
{
	cleanup_close(&trier->hit_fd);
	cleanup_close(&trier->turn_fd);
}

static bool goes_on(const struct trier *trier)
{
	const off_t before = size_of(trier->turn_fd);

	return until(20000, size_of(trier->turn_fd) >= before + TURNS);
}

static bool trier_start(struct engine *e, struct trier *ret)
{
	struct dsec_create_opts opts = create_opts(1);
	pid_t pids[1] = { 0 };

	*ret = (struct trier){ -1, -1 };
	opts.policy = "held";
	opts.flags |= DSEC_CREATE_ALLOW_DEGRADED;
	expect(policy_load(e->d, held_policy) == DSEC_OK);
	auto_made struct made made = create_run(e->d, &opts);

	if (!expect(made.created == 1))
		return false;
	(void)command_start(e->d, made.ids[0], &tries, NULL);
	(void)until(10000, engine_named(e, "sh", pids, 1) >= 1 &&
				   (ret->hit_fd = file_of(pids[0], "hit")) >= 0);
	(void)until(10000, (ret->turn_fd = file_of(pids[0], "turn")) >= 0);
	return expect(ret->hit_fd >= 0 && ret->turn_fd >= 0) && expect(goes_on(ret));
}

static bool state_is_there(const struct engine *e)
{
	char path[256];

	(void)snprintf(path, sizeof path, "%s/%s", engine_state(), e->instance);
	return access(path, F_OK) == 0;
}

static unsigned profiles_of(const struct engine *e)
{
	char start[96];

	(void)snprintf(start, sizeof start, "dsec-%s-", e->instance);
	return apparmor_profiles(start);
}

static void an_instance_is_uninstalled_when_it_is_dead_with_all_that_lives_there(struct engine *e)
{
	const bool has_profiles = access("/sys/kernel/security/apparmor/profiles", R_OK) == 0;
	struct engine_options options = { .arguments = small };
	auto_free struct engine *own = calloc(1, sizeof *own);
	struct trier trier;

	(void)e;
	if (!engine_start(own, &options))
		return;
	if (trier_start(own, &trier)) {
		expect(uninstall(own) == EXIT_REFUSED);
		expect(goes_on(&trier) && state_is_there(own));
		both_kill(own);
		expect(goes_on(&trier));
		expect(!profiles_of(own) == !has_profiles);
		expect(uninstall(own) == 0);
		expect(size_of(trier.hit_fd) == 0 && !state_is_there(own));
	}
	trier_end(&trier);
	engine_expect_gone(own);
	expect(profiles_of(own) == 0);
	expect(uninstall(own) == 0); /* and once more */
}

/* What the shell says after `dsecd --uninstall --all`, in a /run of its own; one may be held. */
static bool all_uninstalled_says(const char *before, const char *wanted)
{
	char command[1536], told[256] = "";
	FILE *pipe;
	size_t bytes;

	(void)snprintf(
		command, sizeof command,
		"S='%s/all'; N=all-%d; export S N; unshare -m sh -c '"
		"mount -t tmpfs none /run && mkdir -p /run/dsec/$N-a /run/dsec/$N-b "
		"$S/$N-b $S/$N-c && : >/run/dsec/$N-b/lock && : >$S/$N-c/policy.default.x && "
		"%s timeout 60 %s --uninstall --all --state $S --sandboxes-max 16 --shards 2 "
		"2>/dev/null; echo $?; cd /run/dsec; ls -d $N-*; cd $S; ls' 2>/dev/null; "
		"rm -r $S",
		engine_state(), getpid(), before, DSECD_PATH);
	pipe = popen(command, "re");
	bytes = pipe ? fread(told, 1, sizeof told - 1, pipe) : 0;
	told[bytes] = 0;
	if (pipe)
		(void)pclose(pipe); /* what it said is what counts */
	if (!strcmp(told, wanted))
		return true;
	note("%s", told);
	return false;
}

static void every_dead_instance_is_uninstalled_and_none_that_runs(struct engine *e)
{
	char wanted[64];

	(void)e;
	(void)snprintf(wanted, sizeof wanted, "%d\nall-%d-a\n", EXIT_REFUSED, getpid());
	expect(all_uninstalled_says("flock /run/dsec/$N-a/lock", wanted));
	expect(all_uninstalled_says("", "0\n"));
}

/* ---- policies ---- */

struct row {
	char name[64];
	uint32_t number;
};

/* A tenant's own, in order of names. */
static unsigned own_policies(struct dsec *d, struct row rows[static ROWS_MAX])
{
	const struct dsec_policy_opts opts = { .size = sizeof opts, .verb = DSEC_POLICY_LIST };
	int64_t ticket = dsec_policy(d, NULL, &opts);
	struct dsec_event *event;
	unsigned count = 0;
	bool last = false;

	while (!last && expect(ticket >= 0 && dsec_wait(d, ticket, 20000, &event) == 0)) {
		const struct dsec_policy_row *row = event->body;

		last = event->flags & DSEC_LAST;
		if (event->kind == DSEC_EV_ROW && !(row->flags & DSEC_POLICY_READY_MADE) &&
		    expect(count < ROWS_MAX)) {
			(void)snprintf(rows[count].name, sizeof rows[count].name, "%.*s",
				       (int)row->name.bytes, (const char *)row->name.data);
			rows[count++].number = row->number;
		}
		dsec_event_free(event);
	}
	return count;
}

static void policies_are_as_before(struct dsec *d, const struct row *before, unsigned count)
{
	struct dsec_create_opts opts = create_opts(1);
	struct row rows[ROWS_MAX];

	if (!expect(own_policies(d, rows) == count))
		return;
	for (unsigned i = 0; i < count; i++)
		if (!expect(!strcmp(rows[i].name, before[i].name) &&
			    rows[i].number == before[i].number))
			note("%s %u, not %s %u", rows[i].name, rows[i].number, before[i].name,
			     before[i].number);
	opts.policy = "child";
	auto_made struct made made = create_run(d, &opts);

	if (expect(made.created == 1)) {
		auto_ran struct ran ran = shell_run(d, made.ids[0], "ls /opt/hidden; echo ran");

		expect(ran_says(&ran, "ran\n"));
		sandbox_end(d, made.ids[0]);
	} else {
		note("%u %s: %s, errno %d", made.trouble.code, made.trouble.step,
		     made.trouble.detail, made.trouble.error);
	}
}

static unsigned policies_make(struct dsec *d, struct row ret[static ROWS_MAX])
{
	expect(policy_load(d, "name: base\nfiles: {hide: [/opt/hidden]}\n") == DSEC_OK);
	expect(policy_load(d, "name: child\nextends: base\n") == DSEC_OK);
	expect(policy_load(d, "name: gone\n") == DSEC_OK);
	expect(policy_load(d, "name: base\nfiles: {hide: [/opt/hidden]}\n"
			      "phases: {judge: child}\n") == DSEC_OK);
	policies_remove(d, (const char *const[]){ "gone", NULL });
	return own_policies(d, ret);
}

/* The suite's own engine, and the one that follows it. */
static void of_a_killed_engine_who_lives_is_held_until_swept_and_policies_stay(struct engine *e)
{
	struct engine_options options = { .arguments = small, .instance = e->instance };
	auto_free struct engine *next = calloc(1, sizeof *next);
	struct row before[ROWS_MAX];
	const unsigned count = policies_make(e->d, before) + 1;
	struct trier trier;
	pid_t pids[64];

	if (!trier_start(e, &trier))
		return;
	expect(own_policies(e->d, before) == count && count == 3);
	both_kill(e);
	expect(goes_on(&trier));
	if (engine_start(next, &options)) {
		expect(engine_members(next, pids, 64) == 0);
		note("%lld turns, %lld bytes of what got through",
		     (long long)size_of(trier.turn_fd), (long long)size_of(trier.hit_fd));
		expect(size_of(trier.hit_fd) == 0);
		trier_end(&trier);
		policies_are_as_before(next->d, before, count);
		policies_remove(next->d, (const char *const[]){ "child", "base", "held", NULL });
		expect(!state_is_there(next));
		engine_end(next);
	}
	trier_end(&trier);
	engine_expect_gone(e);
}

static const struct claim claims[] = {
	CLAIM(an_instance_is_uninstalled_when_it_is_dead_with_all_that_lives_there),
	CLAIM(every_dead_instance_is_uninstalled_and_none_that_runs),
	CLAIM(of_a_killed_engine_who_lives_is_held_until_swept_and_policies_stay),
};

int main(int argc, char **argv)
{
	static const struct suite suites[] = {
		SUITE("outlive", claims, .arguments = small, .is_hurt = true),
	};

	return suites_main(argc, argv, suites, 1);
}
