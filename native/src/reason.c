// SPDX-License-Identifier: Apache-2.0
// Sentences for people (reason.h).
#include "reason.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "calyx/engine.h"
#include "calyx/text.h"

/* strerrorname_np is glibc's alone, and agents are built with musl too. Pointers would take more than the names. */
static const struct {
	unsigned char error;
	char name[13];
} names[] = {
	{EPERM, "EPERM"},	  {ENOENT, "ENOENT"},	    {EINTR, "EINTR"},		{EIO, "EIO"},
	{ENXIO, "ENXIO"},	  {EBADF, "EBADF"},	    {EAGAIN, "EAGAIN"},		{ENOMEM, "ENOMEM"},
	{EACCES, "EACCES"},	  {EFAULT, "EFAULT"},	    {EBUSY, "EBUSY"},		{EEXIST, "EEXIST"},
	{ENODEV, "ENODEV"},	  {ENOTDIR, "ENOTDIR"},	    {EISDIR, "EISDIR"},		{EINVAL, "EINVAL"},
	{ENFILE, "ENFILE"},	  {EMFILE, "EMFILE"},	    {ENOTTY, "ENOTTY"},		{ETXTBSY, "ETXTBSY"},
	{EFBIG, "EFBIG"},	  {ENOSPC, "ENOSPC"},	    {EROFS, "EROFS"},		{ENAMETOOLONG, "ENAMETOOLONG"},
	{ENOSYS, "ENOSYS"},	  {ELOOP, "ELOOP"},	    {ENODATA, "ENODATA"},	{ETIME, "ETIME"},
	{EOVERFLOW, "EOVERFLOW"}, {EREMOTEIO, "EREMOTEIO"}, {EOPNOTSUPP, "EOPNOTSUPP"}, {ETIMEDOUT, "ETIMEDOUT"},
	{ESTALE, "ESTALE"},	  {EDQUOT, "EDQUOT"},	    {ECANCELED, "ECANCELED"},	{EUCLEAN, "EUCLEAN"},
};

int calyx_refuse(char *reason, int error, const char *format, ...)
{
	va_list arguments;

	if (reason) {
		va_start(arguments, format);
		calyx_format_list(reason, CALYX_REASON_MAX, format, arguments);
		va_end(arguments);
	}
	return error;
}

void calyx_reason_add(char *reason, const char *format, ...)
{
	size_t used = strlen(reason);
	va_list arguments;

	if (used > 0 && used + 2 < CALYX_REASON_MAX) {
		memcpy(reason + used, "; ", 3);
		used += 2;
	}
	va_start(arguments, format);
	calyx_format_list(reason + used, CALYX_REASON_MAX - used, format, arguments);
	va_end(arguments);
}

struct calyx_error_text calyx_error_text(int error)
{
	struct calyx_error_text answer;
	int positive = error < 0 ? -error : error;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].error != positive)
			continue;
		calyx_format(answer.text, sizeof(answer.text), "%s (%s)", names[i].name, strerror(positive));
		return answer;
	}
	calyx_format(answer.text, sizeof(answer.text), "errno %d (%s)", positive, strerror(positive));
	return answer;
}
