#pragma once

enum cusolverStatus_t : int;
