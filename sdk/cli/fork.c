/* `dsec fork`: sandboxes whose files begin where another's are. Called by main.c. */
#include <errno.h>
#include <stdlib.h>

#include "sdk/cli/create.h"
#include "sdk/cli/select.h"
#include "sdk/cli/verbs.h"

enum { COUNT_MAX = 32768 };

static int count_read(const char *text, uint32_t *ret)
{
	char *end;
	unsigned long count;

	errno = 0;
	count = strtoul(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end || !count || count > COUNT_MAX)
		return -EINVAL;
	*ret = (uint32_t)count;
	return 0;
}

static int fork_run(struct session *session, const char *id, uint32_t count)
{
	const struct dsec_create_opts opts = { .size = sizeof(opts), .count = count };
	struct dsec_call call = session_call(session);
	struct dsec_id source;

	if (select_one(session, id, &source) < 0)
		return EXIT_TROUBLE;
	return create_tell(session, dsec_fork(session->d, &call, source, &opts), "fork", count);
}

int verb_fork(const struct options *options)
{
	struct session session = { .options = options };
	int status = EXIT_TROUBLE;
	uint32_t count = 1;

	if (options->argument_count < 1 || options->argument_count > 2 ||
	    (options->argument_count == 2 && count_read(options->arguments[1], &count) < 0))
		status = session_refuse(&session, "fork wants a sandbox, and how many: 1 to %d",
					COUNT_MAX);
	else if (session_open(&session, false) == 0)
		status = fork_run(&session, options->arguments[0], count);
	return session_end(&session, status);
}
