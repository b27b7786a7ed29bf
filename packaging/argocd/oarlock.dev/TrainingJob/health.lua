-- Health of a TrainingJob. Its status has one condition for each phase that the job has been in, of which only that of
-- the present phase is true. As for a Job, only a job that has ended successfully is healthy.
local status = obj.status or {}

-- The conditions are written although the spec cannot be read, which leaves observedGeneration as it was.
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Unreadable" and condition.status == "True" then
    return { status = "Degraded", message = condition.message }
  end
end

-- The status of a job that another controller manages is that of its copy, which has other generations.
local is_managed_elsewhere = obj.spec.managedBy ~= nil and obj.spec.managedBy ~= "oarlock.dev/operator"
if not is_managed_elsewhere and status.observedGeneration ~= nil and status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "Waiting for the operator to observe the present spec" }
end

local healths = { Complete = "Healthy", Failed = "Degraded", Stalled = "Degraded" }
-- Reasons of a job that does not start, although it is not suspended.
local reasons = { InvalidSpec = "Degraded", NameTaken = "Degraded", InvalidProfile = "Degraded", Suspended = "Suspended" }

local hs = { status = "Progressing", message = "Waiting for the operator" }
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == status.phase then
    hs.message = condition.reason
    if condition.message ~= nil and condition.message ~= "" then
      hs.message = condition.reason .. ": " .. condition.message
    end
    if condition.status == "True" then -- that of Suspended is false while pods still end
      hs.status = reasons[condition.reason] or healths[condition.type] or "Progressing"
    end
  end
end
return hs
