/*
 * dsec-store: makes and looks after images of the store. Started by the engine for one job, with
 * the descriptors of image.h. Must hold: what it leaves in the scratch is whole where it exits with
 * 0; what it cannot do is told by name.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/store/confine.h"
#include "backends/store/digest.h"
#include "backends/store/file.h"
#include "backends/store/verb.h"

enum { ARGUMENTS_LEAST = 6, TEXTS_BYTES_MAX = 128 << 10 };

/* In order of the wire's numbers. */
static const struct {
	const char *name;
	store_verb *run;
	uint64_t capabilities; /* beside those of all */
	bool itself;	       /* it opens what else it needs, then confines itself */
} verbs[] = {
	{ .name = "compose", .run = verb_compose },
	{ .name = "assemble", .run = verb_assemble },
	{ .name = "gc", .run = verb_gc },
	{ .name = "verify", .run = verb_verify },
	{ .name = "push", .run = verb_push, .itself = true },
	{ .name = "pull", .run = verb_pull, .itself = true },
	/* Attributes of overlayfs, trusted.*, are shown to this alone. */
	{ .name = "pack", .run = verb_pack, .capabilities = 1ull << CAP_SYS_ADMIN },
	{ .name = "hotset", .run = verb_hotset },
};

static int number_parse(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return errno || end == text || *end ? -EINVAL : 0;
}

static int job_run(struct store_job *job, const char *verb)
{
	struct store_confine wish = { 0 };
	int r;

	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
		if (strcmp(verb, verbs[i].name) != 0)
			continue;
		job->report.step = "confine";
		wish.capabilities = verbs[i].capabilities;
		r = verbs[i].itself ? 0 : store_confine(&wish);
		return r < 0 ? r : verbs[i].run(job);
	}
	job->report.step = "verb";
	return report_fail(&job->report, EOPNOTSUPP, verb, "this dsec-store does not know it");
}

/* A sealed file is the engine's; without one there are none. */
static int texts_read(struct store_job *job)
{
	struct stat st;
	char **texts, *text;
	int r, seals = fcntl(IMAGE_FD_STREAM, F_GET_SEALS);

	if (seals < 0 || (seals & STORE_WORDS_SEALS) != STORE_WORDS_SEALS)
		return 0;
	if (fstat(IMAGE_FD_STREAM, &st) < 0)
		return -errno;
	if (st.st_size <= 0 || st.st_size > TEXTS_BYTES_MAX)
		return -E2BIG;
	/* As many as it may be: one byte each. They live as long as the process. */
	text = malloc((size_t)st.st_size);
	texts = calloc((size_t)st.st_size, sizeof *texts);
	if (!text || !texts)
		return -ENOMEM;
	r = file_read(IMAGE_FD_STREAM, text, (size_t)st.st_size, 0);
	if (r < 0 || text[st.st_size - 1])
		return r < 0 ? r : -EINVAL;
	for (char *at = text; at < text + st.st_size; at += strlen(at) + 1)
		texts[job->text_count++] = at;
	job->texts = texts;
	return 0;
}

int main(int argc, char **argv)
{
	struct store_job job = { .report = { .step = "start", .disk_fd = IMAGE_FD_SCRATCH } };
	uint64_t flags = 0;
	int r;

	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return EXIT_FAILURE;
	if (argc < ARGUMENTS_LEAST || number_parse(argv[2], &job.bytes_max) < 0 ||
	    number_parse(argv[3], &job.report.free_min) < 0 || number_parse(argv[4], &flags) < 0 ||
	    flags > UINT32_MAX) {
		fprintf(stderr, "usage: dsec-store VERB BYTES_MAX FREE_MIN FLAGS NAME [TEXT...]\n"
				"It is started by dsecd.\n");
		return EXIT_FAILURE;
	}
	job.flags = (uint32_t)flags;
	job.name = argv[5];
	job.texts = argv + ARGUMENTS_LEAST;
	job.text_count = (uint32_t)(argc - ARGUMENTS_LEAST);
	r = job.text_count ? 0 : texts_read(&job);
	if (r >= 0)
		r = digest_prepare();
	if (r >= 0)
		r = job_run(&job, argv[1]);
	if (r < 0) /* or it told more */
		(void)report_fail(&job.report, -r, NULL, strerror(-r));
	else
		report_done(&job.report);
	/* Nothing at exit finds what it expects in our root: a leak checker wants /proc. */
	_exit(r < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
}
