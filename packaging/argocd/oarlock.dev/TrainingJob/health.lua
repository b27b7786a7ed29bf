-- Health of a TrainingJob. Its status has one condition for each phase that the job has been in, of which only that of
-- the present phase is true. As for a Job, only a job that has ended successfully is healthy.
local status = obj.status or {}

if status.observedGeneration ~= nil and status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "Waiting for the operator to observe the present spec" }
end

local healths = { Complete = "Healthy", Suspended = "Suspended", Failed = "Degraded", Stalled = "Degraded" }
-- Reasons for which a job does not start before a user acts.
local blocking = { InvalidSpec = true, NameTaken = true }

local hs = { status = "Progressing", message = "Waiting for the operator" }
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Unreadable" and condition.status == "True" then
    return { status = "Degraded", message = condition.message }
  end
  if condition.type == status.phase then
    hs.message = condition.reason
    if condition.message ~= nil and condition.message ~= "" then
      hs.message = condition.reason .. ": " .. condition.message
    end
    if blocking[condition.reason] then
      hs.status = "Degraded"
    elseif condition.status == "True" then -- that of Suspended is false while pods still end
      hs.status = healths[condition.type] or "Progressing"
    end
  end
end
return hs
