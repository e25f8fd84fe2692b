/* Completing command lines of dsec in a shell. */
#pragma once

/* What the shell is to run; NULL: a shell that is not known. */
const char *completion_script(const char *shell);
