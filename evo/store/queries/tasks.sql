-- State of each task that was asked for: confirmed, unconfirmed, nothing correct or not begun, and what goes on with it.
-- goes_on_with: the command that comes nearer to a confirmed best kernel, once the run is over; RUN is the run.
SELECT
    /*t.run,*/ t.place, t.task,
    CASE
        WHEN s.level = 'confirmed' THEN 'confirmed'
        WHEN s.kernel_id IS NOT NULL THEN 'unconfirmed'
        WHEN t.is_begun THEN 'nothing correct'
        ELSE 'not begun'
    END AS state,
    s.kernel_id, s.level, s.best_speedup, s.speedup, s.speedup_low, s.speedup_high, s.against_library,
    CASE state
        WHEN 'confirmed' THEN NULL
        WHEN 'unconfirmed' THEN 'evo resume RUN --confirm'
        ELSE 'evo resume RUN --budget MORE'
    END AS goes_on_with
FROM tasks AS t
LEFT JOIN standings AS s USING (/*run,*/ task)
ORDER BY /*t.run,*/ t.place
