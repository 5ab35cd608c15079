// And is no memory asked for by a job with all of fio's words either?
#define SHAPED
#include "nothing_is_allocated_after_start.c"
