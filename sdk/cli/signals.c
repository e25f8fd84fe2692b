/*
 * Taking signals in turn with everything else. Called by live.c, terminal.c and image_job.c.
 * Must hold: what is blocked here is read from the descriptor or unblocked again; a signal that is
 * ignored (nohup, a background job) would come too if it were blocked, so it is not.
 */
#include "sdk/cli/signals.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/signalfd.h>
#include <unistd.h>

static bool is_ignored(int number)
{
	struct sigaction action;

	return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

int signals_open(struct signals *signals, const int *numbers, size_t count)
{
	sigset_t mask;

	(void)sigemptyset(&mask); /* cannot fail, as those that follow */
	for (size_t at = 0; at < count; at++)
		if (!is_ignored(numbers[at]))
			(void)sigaddset(&mask, numbers[at]);
	(void)sigprocmask(SIG_BLOCK, &mask, &signals->before);
	signals->fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return signals->fd < 0 ? -errno : 0;
}

int signals_next(struct signals *signals)
{
	struct signalfd_siginfo info;

	if (signals->fd < 0 || read(signals->fd, &info, sizeof(info)) != sizeof(info))
		return 0;
	return (int)info.ssi_signo;
}

void signals_close(struct signals *signals)
{
	if (signals->fd >= 0)
		(void)close(signals->fd); /* a descriptor only */
	signals->fd = -1;
	(void)sigprocmask(SIG_SETMASK, &signals->before, NULL);
}
