/* What dsec can do. Each verb returns the exit status. */
#pragma once

#include "sdk/cli/params.h"

int verb_run(const struct options *options);
int verb_create(const struct options *options);
int verb_exec(const struct options *options);
int verb_cp(const struct options *options);
int verb_ls(const struct options *options);
int verb_cat(const struct options *options);
int verb_file(const struct options *options);
int verb_attach(const struct options *options);
int verb_logs(const struct options *options);
int verb_port(const struct options *options);
int verb_kill(const struct options *options);
int verb_ps(const struct options *options);
int verb_rm(const struct options *options);
int verb_stats(const struct options *options);
int verb_events(const struct options *options);
int verb_top(const struct options *options);
int verb_inspect(const struct options *options);
int verb_label(const struct options *options);
int verb_change(const struct options *options);
int verb_fetched(const struct options *options);
int verb_wait(const struct options *options);
int verb_policy(const struct options *options);
int verb_fork(const struct options *options);
int verb_phase(const struct options *options);
int verb_image(const struct options *options);
int verb_call(const struct options *options);
int verb_check(const struct options *options);
int verb_proxy(const struct options *options);
int verb_completion(const struct options *options);
int verb_version(const struct options *options);
